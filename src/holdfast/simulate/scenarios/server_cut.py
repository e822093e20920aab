"""The holder's connections to the lock server are cut, for longer than its ttl, and the waiter's for a moment."""

from __future__ import annotations

import random

from holdfast.simulate.acts import Cut, Use
from holdfast.simulate.lock_server import ServerWorld
from holdfast.simulate.scenario import Plot, Scenario


def plot(chance: random.Random) -> Plot:
    cut = round(chance.uniform(0.3, 0.6), 3)
    return Plot(
        (
            Use(0.0, "A", "account", 8.0, writes="fenced", checks=False),
            Use(0.1, "B", "account", 0.2, writes="fenced"),
            Use(0.2, "C", "account", 0.2, writes="fenced"),
            Cut(cut, "A", round(chance.uniform(7.0, 9.0), 3)),
            Cut(round(cut + chance.uniform(0.1, 0.5), 3), "B", round(chance.uniform(0.2, 1.0), 3)),
        ),
        ttl=4.0,
        world=ServerWorld,
    )


SCENARIO = Scenario(
    "server-cut",
    "A holder is cut off from the lock server",
    "A is told that it has lost the lock before the server gives it to B. B's connection broke while it stood in "
    "line: it connects again, resumes its session, and still has its place before C. A writes all the same, later, "
    "and is refused by the fence.",
    plot,
    shows=("cut", "lost", "healed", "stale", "written"),
)
