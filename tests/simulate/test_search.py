"""The search finds what is broken, shrinks it, and prints the line that runs it again."""

from __future__ import annotations

import os

import pytest

from holdfast.simulate.scenario import play
from holdfast.simulate.scenarios import find
from holdfast.simulate.search import search
from holdfast.simulate.table_server import TableServer
from holdfast.simulate.verdict import broken
from tests.simulate.mutants import (
    ForgetsTokens,
    GrantsToTheDead,
    RecreatesOnRenewal,
    ReleasesAnyones,
    SkipsTheQueue,
)

MUTANTS: dict[type[TableServer], set[str]] = {
    ReleasesAnyones: {"exclusion"},
    SkipsTheQueue: {"order"},
    ForgetsTokens: {"tokens", "fence"},
    RecreatesOnRenewal: {"exclusion", "leaks"},
    GrantsToTheDead: {"progress", "leaks"},
}
BOUND = 400
RUNS = int(os.environ.get("HOLDFAST_SIMULATED_RUNS", "400"))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_lock_manager_is_caught_within_a_bounded_number_of_runs(mutant: type[TableServer]) -> None:
    result = search(find("storm"), 1, BOUND, manager_class=mutant)

    assert not result.ok, f"{mutant.__name__} got away with {BOUND} runs"
    assert {violation.claim for violation in result.found} & MUTANTS[mutant]


@pytest.mark.parametrize(
    ("name", "first", "runs"),
    [
        ("storm", 1, RUNS),
        ("redlock-storm", 690, max(60, RUNS // 8)),
        ("server-storm", 1, max(60, RUNS // 4)),
        ("server-crash", 60, max(20, RUNS // 20)),
    ],
)
def test_a_sound_lock_manager_passes_a_search(name: str, first: int, runs: int) -> None:
    # From seed 717 of Redlock a give-back that came late took the vote of a Redlock claim's next try.
    result = search(find(name), first, runs)

    assert result.ok, [violation.again for violation in result.found]
    assert result.runs == runs


@pytest.mark.parametrize("mutant", [ReleasesAnyones, GrantsToTheDead], ids=lambda mutant: mutant.__name__)
def test_a_violation_is_shrunk_to_acts_that_are_all_needed(mutant: type[TableServer]) -> None:
    violation = search(find("storm"), 1, BOUND, manager_class=mutant).found[0]

    assert len(violation.shortest.acts) < violation.acts
    for left_out in violation.shortest.kept:
        keep = [number for number in violation.shortest.kept if number != left_out]
        told = play(find("storm"), violation.seed, keep=keep, manager_class=mutant)
        assert violation.claim not in {finding.claim for finding in broken(told.history)}


def test_the_line_that_is_printed_tells_the_same_story_again() -> None:
    violation = search(find("storm"), 1, BOUND, manager_class=ReleasesAnyones).found[0]
    *_, seed, _, keep = violation.again.split()

    again = play(
        find("storm"), int(seed), keep=[int(number) for number in keep.split(",")], manager_class=ReleasesAnyones
    )

    assert again.simulation.chronicle.lines == violation.shortest.simulation.chronicle.lines
    assert violation.claim in {finding.claim for finding in broken(again.history)}
