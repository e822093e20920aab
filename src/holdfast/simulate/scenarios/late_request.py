"""A late request: the claim was withdrawn while its request was stuck, and it arrives after all."""

from __future__ import annotations

import random

from holdfast.simulate.acts import Cut, Use
from holdfast.simulate.scenario import Plot, Scenario


def plot(chance: random.Random) -> Plot:
    return Plot(
        (
            Use(0.0, "B", "other", 0.05),
            Cut(0.5, "B", round(chance.uniform(5.0, 8.0), 1)),
            Use(1.0, "B", "account", 0.2, wait=2.0),
            Use(1.0, "A", "account", 0.2, writes="fenced"),
            Use(10.0, "C", "account", 0.2, writes="fenced"),
        ),
        ttl=30.0,
    )


SCENARIO = Scenario(
    "late-request",
    "A request that arrives after it was withdrawn",
    "B asks for the lock while it is cut off, and gives up. When the network is back, its request and its withdrawal "
    "arrive in any order. Whichever it is, B is not left holding a lock that it does not know of.",
    plot,
    shows=("cut", "refused", "written"),
)
