"""Clock drift: clocks that run a little fast or slow. The holder's margin covers it."""

from __future__ import annotations

import random

from holdfast.simulate.acts import Cut, Use
from holdfast.simulate.scenario import Plot, Scenario


def plot_with(drift: float, chance: random.Random) -> Plot:
    """A holds and is cut off until its ttl is over, by a clock that is slow; B waits, and takes over."""
    return Plot(
        (
            Use(0.0, "A", "account", 12.0),
            Cut(round(chance.uniform(1.0, 3.0), 2), "A", 16.0),
            Use(0.5, "B", "account", 4.0),
        ),
        rates={"A": 1.0 - drift, "B": 1.0 + drift / 2},
    )


def plot(chance: random.Random) -> Plot:
    return plot_with(chance.uniform(0.002, 0.009), chance)


SCENARIO = Scenario(
    "clock-drift",
    "Clocks that drift by less than a hundredth",
    "A's clock is slow, so its ttl ends later for A than for the lock manager. A gives up one hundredth and 50 ms "
    "before that, by its own clock: before B gets the lock.",
    plot,
    shows=("cut", "lost", "granted"),
)
