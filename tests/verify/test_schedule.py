"""The plan of a run."""

from __future__ import annotations

import itertools
import random

import pytest

from holdfast.verify.faults import FAULTS
from holdfast.verify.schedule import Appointment, plan

ALL = list(FAULTS.values())
TTL = 2.0


def told(appointments: list[Appointment]) -> list[tuple[float, str, float]]:
    return [(each.at, each.fault.name, each.length) for each in appointments]


def test_the_same_seed_gives_the_same_plan() -> None:
    first, again = (plan(ALL, 60.0, TTL, random.Random("seed")) for _ in range(2))

    assert told(first) == told(again)
    assert told(first) != told(plan(ALL, 60.0, TTL, random.Random("another seed")))


@pytest.mark.parametrize("seconds", [2.0, 6.0, 30.0, 120.0])
def test_every_fault_has_its_turn_and_begins_before_the_end(seconds: float) -> None:
    made = plan(ALL, seconds, TTL, random.Random(1))

    assert {each.fault.name for each in made} == set(FAULTS)
    assert all(0 <= each.at < seconds for each in made)


def test_a_long_run_has_each_fault_by_itself_first_and_mixes_them_then() -> None:
    made = sorted(plan(ALL, 120.0, TTL, random.Random(2)), key=lambda each: each.at)
    alone, mixed = made[: len(ALL)], made[len(ALL) :]

    assert {each.fault.name for each in alone} == set(FAULTS)
    assert all(one.at + one.length < other.at for one, other in itertools.pairwise(alone))
    assert any(one.at + one.length > other.at for one, other in itertools.pairwise(mixed))


def test_without_faults_nothing_is_planned() -> None:
    assert plan([], 30.0, TTL, random.Random(3)) == []


def test_in_a_short_run_what_lasts_longest_begins_first() -> None:
    """Otherwise it would go on long after the run, and everybody would wait for its end."""
    made = plan(ALL, 5.0, TTL, random.Random(4))

    assert [each.length for each in made] == sorted((each.length for each in made), reverse=True)
