"""A deadlock: two take two locks in opposite order. The one that would close the circle is refused."""

from __future__ import annotations

import random

from holdfast.simulate.acts import UseBoth
from holdfast.simulate.scenario import Plot, Scenario


def plot(chance: random.Random) -> Plot:
    late = round(chance.uniform(0.0, 0.05), 3)
    return Plot(
        (
            UseBoth(0.0, "A", "savings", "checking", 0.3),
            UseBoth(late, "B", "checking", "pension", 0.3),
            UseBoth(0.05 - late, "C", "pension", "savings", 0.3),
        )
    )


SCENARIO = Scenario(
    "deadlock",
    "Three wait for each other in a circle",
    "A, B and C each hold one lock and want the next one's. Whoever asks last is refused at once, and told the whole "
    "circle; the other two go on.",
    plot,
    shows=("refused", "released"),
)
