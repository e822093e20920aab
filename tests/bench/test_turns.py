"""What the turns of waiters say."""

from __future__ import annotations

import math
import threading

import pytest

from holdfast.bench.plan import Plan
from holdfast.bench.turns import Contest, Turn, judge


def turns(*grants: float, held: float = 0.25) -> list[Turn]:
    return [Turn(at, at + held) for at in grants]


def test_waiters_that_alternate_have_the_same_number_of_grants() -> None:
    found = judge([turns(0, 2, 4, 6), turns(1, 3, 5, 7)], stopped=7)

    # From 1, when both have had a first turn: 2, 4, 6 and 3, 5, 7.
    assert found["max_over_mean"] == 1.0
    assert found["fewest_grants"] == 3
    assert found["grants_per_s"] == 1.0


def test_a_waiter_that_is_served_twice_as_often_shows_in_max_over_mean() -> None:
    found = judge([turns(0, 2, 3, 5, 6), turns(1, 4, 7)], stopped=7)

    assert found["max_over_mean"] == pytest.approx(4 / 3)
    assert found["fewest_grants"] == 2


def test_a_waiter_that_never_had_a_turn_counts_with_none() -> None:
    found = judge([turns(0, 1, 2), []], stopped=2)

    assert found["max_over_mean"] == 2.0
    assert found["fewest_grants"] == 0


def test_a_hand_off_is_counted_from_the_beginning_of_a_release_to_the_next_grant_of_anybody() -> None:
    found = judge([turns(0, 2, 4), turns(1, 3)], stopped=4)

    assert found["p50_ms"] == found["p99_ms"] == pytest.approx(750)


def test_turns_before_everybody_had_one_and_after_the_stop_do_not_count() -> None:
    late_starter = turns(10, 12, 14, 16)
    early = turns(1, 2, 3, 4, 5, 6, 11, 13, 15, 17)

    found = judge([early, late_starter], stopped=14)

    assert found["max_over_mean"] == 1.0
    assert found["grants_per_s"] == 1.0


def test_a_contest_without_turns_has_no_figures_to_be_proud_of() -> None:
    found = judge([[], []], stopped=1)

    assert found["grants_per_s"] == found["fewest_grants"] == 0
    assert math.isnan(found["p50_ms"])
    assert math.isnan(found["max_over_mean"])


class PlainTaker:
    """A lock of the standard library."""

    def __init__(self, lock: threading.Lock) -> None:
        self.acquire, self.release = lock.acquire, lock.release


class Broken:
    """A lock that does not work."""

    def acquire(self) -> None:
        raise OSError("no lock here")

    def release(self) -> None:
        raise AssertionError("it was never taken")


def test_a_contest_lasts_until_everybody_has_had_its_share() -> None:
    lock = threading.Lock()
    contest = Contest([PlainTaker(lock) for _ in range(3)])
    plan = Plan(seconds=0.0, grants=5)

    contest.start()
    contest.wait_until_met(plan)
    firsts = [len(own) for own in contest.turns]
    contest.wait_until_enough(plan)
    contest.stop()

    assert all(firsts)
    assert all(len(own) > first + 5 for own, first in zip(contest.turns, firsts, strict=True))


def test_an_error_in_one_waiter_ends_the_contest_and_comes_out() -> None:
    contest = Contest([PlainTaker(threading.Lock()), Broken()])

    contest.start()
    contest.wait_until_met(Plan(patience=60))

    with pytest.raises(OSError, match="no lock here"):
        contest.stop()
