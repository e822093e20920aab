"""Searching many seeds for a violation, and shrinking it to the shortest story."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.simulate.scenario import Scenario, Told, command, play, plot_of
from holdfast.simulate.verdict import broken
from holdfast.verify.finding import Finding


@dataclass(frozen=True, slots=True)
class Violation:
    """A claim that a run broke, and the shortest story of it."""

    claim: str
    seed: int
    acts: int
    """How many acts the plot had before anything was left out."""
    shortest: Told
    finding: Finding

    @property
    def again(self) -> str:
        """The line that runs the shortest story again."""
        return command(self.shortest.scenario, self.seed, self.shortest.kept)


@dataclass(slots=True)
class Search:
    """What a search came to."""

    scenario: Scenario
    first: int
    runs: int = 0
    found: list[Violation] = field(default_factory=list)
    """Unexpected violations: one for each claim."""
    expected: int = 0
    """In how many runs a control broke what it has to break."""
    missed: list[int] = field(default_factory=list)
    """Seeds from which a control broke nothing although it always has to."""

    @property
    def ok(self) -> bool:
        """Whether all claims were kept; for a control, whether it went wrong as it has to."""
        if self.scenario.breaks:
            return self.expected > 0 and not self.missed
        return not self.found


def search(
    scenario: Scenario,
    first: int,
    runs: int,
    *,
    manager_class: type[Any] | None = None,
    stop: bool = True,
    progress: Callable[[int], None] = lambda run: None,
) -> Search:
    """Run a scenario from many seeds. Stops at the first violation, unless told to look for one of each claim."""
    result = Search(scenario, first)
    for seed in range(first, first + runs):
        told = play(scenario, seed, told=False, manager_class=manager_class)
        result.runs += 1
        progress(result.runs)
        findings = broken(told.history)
        if scenario.breaks:
            went_wrong = any(finding.claim == scenario.breaks for finding in findings)
            result.expected += went_wrong
            if scenario.always and not went_wrong:
                result.missed.append(seed)
            continue
        known = {violation.claim for violation in result.found}
        for finding in findings:
            if finding.claim not in known:
                result.found.append(shrink(scenario, seed, finding.claim, manager_class))
        if result.found and stop:
            break
    return result


def shrink(scenario: Scenario, seed: int, claim: str, manager_class: type[Any] | None = None) -> Violation:
    """Leave out acts for as long as the claim is still broken without them."""
    every = len(plot_of(scenario, seed).acts)
    kept = tuple(range(every))

    def still_broken(chosen: Sequence[int]) -> bool:
        told = play(scenario, seed, keep=chosen, told=False, manager_class=manager_class)
        return any(finding.claim == claim for finding in broken(told.history))

    size = max(1, every // 2)
    while True:
        smaller = _without_some(kept, size, still_broken)
        if smaller is not None:
            kept = smaller
        elif size > 1:
            size //= 2
        else:
            break
    shortest = play(scenario, seed, keep=kept, manager_class=manager_class)
    finding = next(finding for finding in broken(shortest.history) if finding.claim == claim)
    return Violation(claim, seed, every, shortest, finding)


def _without_some(
    kept: tuple[int, ...], size: int, still_broken: Callable[[Sequence[int]], bool]
) -> tuple[int, ...] | None:
    """The acts without `size` neighbours that are not needed; None if all are."""
    for start in range(0, len(kept), size):
        rest = kept[:start] + kept[start + size :]
        if len(rest) < len(kept) and still_broken(rest):
            return rest
    return None


def first_that_goes_wrong(scenario: Scenario, first: int, most: int = 2_000) -> int:
    """The first seed from which a control breaks what it has to; the first of all if none does."""
    for seed in range(first, first + most):
        told = play(scenario, seed, told=False)
        if any(finding.claim == scenario.breaks for finding in broken(told.history)):
            return seed
    return first
