"""The same split brain without a fence: an update is lost. If it were not, this scenario would fail."""

from __future__ import annotations

from functools import partial

from holdfast.simulate.scenario import Scenario
from holdfast.simulate.scenarios.split_brain import plot
from holdfast.verify.checkers.updates import UNFENCED

SCENARIO = Scenario(
    "split-brain-unfenced",
    "The split brain, without a fence",
    "The same story, with a resource that takes every write. The lock does nothing wrong, and B's update is lost "
    "all the same: A writes over it when it wakes. This has to go wrong.",
    partial(plot, "unfenced"),
    breaks=UNFENCED,
    shows=("stopped", "lost"),
)
