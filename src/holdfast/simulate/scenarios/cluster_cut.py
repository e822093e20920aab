"""The lock server that leads is cut off from etcd while its clients still reach it."""

from __future__ import annotations

import random
from typing import Any

from holdfast.simulate.acts import Use
from holdfast.simulate.cluster_acts import CutLeader
from holdfast.simulate.lock_cluster import ClusterWorld
from holdfast.simulate.scenario import Plot, Scenario
from holdfast.simulate.scenarios.cluster_takeover import TTL


def plot_with(manager_class: type[Any] | None, chance: random.Random) -> Plot:
    """A holds for long, by a server that another one has replaced; B and C come to the other one."""
    cut = round(chance.uniform(4.0, 5.0), 2)
    return Plot(
        (
            Use(2.0, "A", "account", 50.0, 60.0, "fenced"),
            CutLeader(cut, 60.0),
            Use(12.0, "B", "account", 0.3, 90.0, "fenced"),
            Use(12.5, "C", "account", 0.3, 90.0, "fenced"),
        ),
        ttl=TTL,
        world=ClusterWorld,
        manager_class=manager_class,
    )


def plot(chance: random.Random) -> Plot:
    return plot_with(None, chance)


SCENARIO = Scenario(
    "cluster-cut",
    "The lock server that leads is cut off from etcd",
    "Its clients still reach it, and it could go on answering their heartbeats. It stops when its lease is over on its "
    "own clock, before another server can lead: A is sent there, resumes its session, and holds on; B and C wait.",
    plot,
    shows=("cut", "deposed", "leads", "written"),
)
