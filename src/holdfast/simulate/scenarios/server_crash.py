"""The lock server loses its power: the real server, on a disk that forgets what was not synced."""

from __future__ import annotations

import random
from typing import Any

from holdfast.simulate.acts import Act, Crash, Use
from holdfast.simulate.lock_server import LockServer, ServerWorld
from holdfast.simulate.scenario import Plot, Scenario
from holdfast.simulate.table_server import Disk


def plot_with(manager_class: type[Any], chance: random.Random) -> Plot:
    """Three take turns while the power fails again and again."""
    uses: list[Act] = [
        Use(round(0.13 * number, 2), "ABC"[number % 3], "account", chance.choice((0.02, 0.3)), 5.0, writes="fenced")
        for number in range(24)
    ]
    crashes: list[Act] = [Crash(round(chance.uniform(0.1, 3.0), 4), 0.05) for _ in range(6)]
    acts = tuple(sorted([*uses, *crashes], key=lambda act: act.at))
    return Plot(acts, ttl=4.0, disk=Disk(sync=0.06), world=ServerWorld, manager_class=manager_class)


def plot(chance: random.Random) -> Plot:
    return plot_with(LockServer, chance)


SCENARIO = Scenario(
    "server-crash",
    "The lock server loses its power, six times",
    "The real server, from the bytes of a request to the records of its store. Its disk forgets what was not synced. "
    "Nothing is answered before it is, so no grant, no place in line and no token that anybody has heard of is "
    "forgotten; clients connect again and resume their sessions.",
    plot,
    shows=("crashed", "restarted", "written"),
)
