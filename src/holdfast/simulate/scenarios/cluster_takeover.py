"""Whichever lock server of a cluster leads loses its power, again and again."""

from __future__ import annotations

import random

from holdfast.simulate.acts import Act, Crash, Use
from holdfast.simulate.lock_cluster import ClusterWorld
from holdfast.simulate.scenario import Plot, Scenario

TTL = 15.0
"""The shortest that the servers take, with a lease of 5 s."""
WAIT = 60.0


def uses(chance: random.Random, start: float, count: int, every: float) -> list[Act]:
    """Three people take turns."""
    return [
        Use(round(start + every * number, 2), "ABC"[number % 3], "account", chance.choice((0.02, 0.3)), WAIT, "fenced")
        for number in range(count)
    ]


def told(acts: list[Act]) -> Plot:
    return Plot(tuple(sorted(acts, key=lambda act: act.at)), ttl=TTL, world=ClusterWorld)


def plot(chance: random.Random) -> Plot:
    crashes: list[Act] = [Crash(round(start + chance.uniform(0.0, 2.0), 3), 4.0) for start in (4.0, 14.0, 24.0)]
    return told([*uses(chance, 2.0, 15, 2.0), *crashes])


SCENARIO = Scenario(
    "cluster-takeover",
    "The lock server that leads loses its power, three times",
    "Three real lock servers with their state in a simulated etcd. When the leader's lease has run out, another one "
    "takes over with all that was answered: no grant, no place in line and no token is forgotten, and clients find it "
    "by themselves.",
    plot,
    shows=("crashed", "restarted", "leads", "written"),
)
