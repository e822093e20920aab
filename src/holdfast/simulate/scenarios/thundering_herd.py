"""The thundering herd that does not come: a hundred wait for one lock, and each release wakes exactly one."""

from __future__ import annotations

import random

from holdfast.simulate.acts import Use
from holdfast.simulate.scenario import Plot, Scenario

CLIENTS = 100


def plot(chance: random.Random) -> Plot:
    return Plot(
        tuple(
            Use(round(chance.uniform(0.0, 0.2), 4), f"c{number:03}", "account", 0.01)
            for number in range(CLIENTS)
        )
    )  # fmt: skip


SCENARIO = Scenario(
    "thundering-herd",
    "A hundred want one lock at the same moment",
    "A hundred processes ask within a fifth of a second. Each release wakes the next in line and nobody else, so the "
    "number of messages for each grant does not grow with the crowd.",
    plot,
    shows=("granted", "released"),
)
