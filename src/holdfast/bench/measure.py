"""What a measure is, and how two subjects are measured in turns."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Protocol

from holdfast.bench.plan import Plan
from holdfast.bench.subject import Subject

Figures = dict[str, float]
Slice = Callable[[], Figures]
"""Measures once."""


class Measure(Protocol):
    """One question, asked of any subject."""

    group: str
    """What `--only` names."""
    case: str
    repeats: bool
    """Whether a slice is worth repeating; if not, it is measured in one round only."""

    def fits(self, subject: Subject) -> bool:
        """Whether the question makes sense there."""

    def open(self, subject: Subject, plan: Plan) -> AbstractContextManager[Slice]:
        """Set everything up, so that a slice measures and does nothing else."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a measure: a set of figures for each subject and round."""

    group: str
    case: str
    ours: tuple[Figures, ...]
    peer: tuple[Figures, ...] = ()

    def medians(self, runs: Sequence[Figures]) -> Figures:
        """The median of each figure over the rounds."""
        keys = runs[0] if runs else ()
        return {key: statistics.median(run[key] for run in runs) for key in keys}

    def ratios(self) -> Figures:
        """Ours to the peer's: the median of the rounds' ratios, not the ratio of medians.

        The two slices of a round lie side by side, so that what slows the machine down for a
        while slows both. A figure that only one side has, or that is 0 for the peer, has no ratio.
        """
        pairs = list(zip(self.ours, self.peer, strict=True)) if self.peer else []
        keys = [key for key in pairs[0][0] if key in pairs[0][1]] if pairs else []
        found = {key: [ratio(ours[key], peer[key]) for ours, peer in pairs] for key in keys}
        return {key: statistics.median(values) for key, values in found.items() if not any(map(math.isnan, values))}


def ratio(ours: float, peer: float) -> float:
    """How many times the peer's figure ours is; not a number if the peer's is 0."""
    return ours / peer if peer else math.nan


def compare(measure: Measure, ours: Subject, peer: Subject | None, plan: Plan) -> Result:
    """Run a measure in rounds: ours, the peer, ours, the peer, …"""
    subjects = [ours] if peer is None or not measure.fits(peer) else [ours, peer]
    runs: list[list[Figures]] = [[] for _ in subjects]
    with ExitStack() as stack:
        slices = [stack.enter_context(measure.open(subject, plan)) for subject in subjects]
        for _ in range(plan.rounds if measure.repeats else 1):
            for done, measure_once in zip(runs, slices, strict=True):
                done.append(measure_once())
    return Result(measure.group, measure.case, *(tuple(done) for done in runs))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all does not exceed; not a number if there is none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
