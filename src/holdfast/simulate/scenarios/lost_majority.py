"""A replicated manager loses a majority of its nodes: nobody gets the lock, and nobody is told a lie."""

from __future__ import annotations

from functools import partial

from holdfast.simulate.scenario import Scenario
from holdfast.simulate.scenarios.lost_minority import plot

SCENARIO = Scenario(
    "lost-majority",
    "Three of five nodes stop",
    "The same with three nodes stopped. The two that are left cannot give the lock to anybody: callers are told that "
    "it is not done, or that nobody can say. When the nodes are back, everything goes on.",
    partial(plot, 3),
    shows=("stopped", "refused", "written"),
)
