"""A crashed holder: it dies with the lock in its hand, and the next one gets it when its ttl is over."""

from __future__ import annotations

import random

from holdfast.simulate.acts import Kill, Use
from holdfast.simulate.scenario import Plot, Scenario


def plot(chance: random.Random) -> Plot:
    dies = round(chance.uniform(0.5, 4.0), 2)
    return Plot(
        (
            Use(0.0, "A", "account", 60.0, writes="fenced"),
            Use(0.2, "B", "account", 0.2, writes="fenced"),
            Use(0.4, "C", "account", 0.2, writes="fenced"),
            Kill(dies, "A"),
            Kill(dies + 1.0, "B"),
        )
    )


SCENARIO = Scenario(
    "crashed-holder",
    "The holder dies, and the next in line too",
    "A is killed while it holds the lock, and B while it waits. C gets the lock as soon as A's session has run out: "
    "the dead one in line costs nothing more.",
    plot,
    shows=("killed", "granted", "written"),
)
