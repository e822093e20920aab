"""Clock drift beyond all bounds: the holder believes in its grant for too long. Only a fence helps."""

from __future__ import annotations

import random

from holdfast.simulate.scenario import Plot, Scenario
from holdfast.simulate.scenarios.clock_drift import plot_with


def plot(chance: random.Random) -> Plot:
    return plot_with(chance.uniform(0.15, 0.3), chance)


SCENARIO = Scenario(
    "clock-drift-wild",
    "A clock that is slow by a fifth",
    "The same, with a clock that no margin covers: A and B both hold the lock for a while. This has to go wrong. It "
    "is what a suspended virtual machine looks like, and why the token has to reach the resource.",
    plot,
    breaks="exclusion",
    shows=("cut", "lost", "granted"),
)
