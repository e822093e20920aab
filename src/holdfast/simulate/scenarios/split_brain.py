"""The split brain: a holder sleeps past its ttl, wakes and writes. The fence refuses it."""

from __future__ import annotations

import random
from functools import partial

from holdfast.simulate.acts import Stop, Use
from holdfast.simulate.scenario import Plot, Scenario


def plot(writes: str, chance: random.Random) -> Plot:
    """A is stopped between its last look and its write; B takes over and writes meanwhile."""
    stops = round(chance.uniform(0.3, 0.8), 2)
    return Plot(
        (
            Use(0.0, "A", "account", 1.0, writes=writes, checks=False),
            Use(0.2, "B", "account", 0.2, writes=writes),
            Stop(stops, "A", round(chance.uniform(12.0, 15.0), 1)),
            Use(20.0, "C", "account", 0.2, writes=writes),
        )
    )


SCENARIO = Scenario(
    "split-brain",
    "The split brain, with a fence",
    "A is stopped for longer than its ttl with a write on its way. B gets the lock, as it must, and writes. When A "
    "goes on, its write carries an older token, and the resource refuses it: no update is lost.",
    partial(plot, "fenced"),
    shows=("stopped", "stale", "lost"),
)
