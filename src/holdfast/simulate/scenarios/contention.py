"""Contention: several want the same lock, and get it one after the other, in the order in which they came."""

from __future__ import annotations

import random

from holdfast.simulate.acts import Use
from holdfast.simulate.scenario import Plot, Scenario


def plot(chance: random.Random) -> Plot:
    people = ["A", "B", "C", "D", "E"]
    return Plot(
        tuple(
            Use(round(0.02 * at + chance.uniform(0.0, 0.3), 3), who, "account", round(chance.uniform(0.05, 0.4), 2),
                writes="fenced")
            for at, who in enumerate(people * 2)
        )
    )  # fmt: skip


SCENARIO = Scenario(
    "contention",
    "Five want one lock",
    "Five processes add to one list under one lock, twice each. Each waits its turn, tokens grow with every grant, "
    "and all ten updates are there in the end.",
    plot,
    shows=("granted", "written"),
)
