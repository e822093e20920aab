"""When a grant counts as held: never longer than its holder could rely on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.verify.history import Call, Fault, Record
from holdfast.verify.holds import holds
from tests.verify.told import call, held, history, pause


def span(*records: Record | list[Call]) -> tuple[float, float] | None:
    found = holds(history(*records))
    assert len(found) <= 1
    return (found[0].start, found[0].end) if found else None


def acquired(end: float = 1.0, **facts: Any) -> Call:
    return call("acquire", "a", 0.5, end, claim="x", token=1, **facts)


def test_a_hold_counts_from_the_answer_until_the_release_begins() -> None:
    assert span(held("a", 1.0, 2.0)) == (1.0, 2.0)


def test_what_was_not_answered_is_held_by_nobody() -> None:
    assert span(call("acquire", "a", 0.5, None, "unknown", claim="x")) is None


def test_what_was_refused_is_held_by_nobody() -> None:
    assert span(call("acquire", "a", 0.5, 1.0, "failed", error="NotAcquired")) is None


def test_a_lost_hold_ends_at_its_deadline_however_late_its_holder_woke() -> None:
    lost = call("lost", "a", 30.0, 30.0, claim="x", deadline=4.0)

    assert span(acquired(deadline=4.0), pause("a", 2.0, 30.0), lost) == (1.0, 4.0)


def test_a_hold_that_was_lost_before_its_deadline_ends_when_its_holder_was_told() -> None:
    lost = call("lost", "a", 2.0, 2.0, claim="x", deadline=4.0)

    assert span(acquired(deadline=4.0), lost) == (1.0, 2.0)


def test_a_hold_goes_on_while_heartbeats_move_its_deadline() -> None:
    checked = call("check", "a", 5.0, 5.0, claim="x", deadline=8.0)

    assert span(acquired(deadline=4.0), checked) == (1.0, 8.0)


def test_a_killed_holder_is_not_known_to_hold_after_it_was_last_heard_of() -> None:
    heard = call("check", "a", 1.5, 1.6, claim="x", deadline=9.0)

    assert span(acquired(deadline=9.0), heard, Fault("kill", "a", 2.0)) == (1.0, 1.6)


def test_a_holder_whose_successor_speaks_is_dead() -> None:
    successor = replace(call("check", "a", 4.0, 4.0, claim="other"), id="a.2.1")
    heard = call("check", "a", 1.5, 1.6, claim="x", deadline=9.0)

    assert span(acquired(deadline=9.0), heard, successor) == (1.0, 1.6)


def test_the_kill_of_a_former_process_of_the_same_name_ends_nothing() -> None:
    assert span(acquired(deadline=9.0), Fault("kill", "a", 0.2)) == (1.0, 9.0)


def test_a_grant_without_any_deadline_or_end_is_known_of_its_last_check_only() -> None:
    assert span(acquired(), call("check", "a", 3.0, 7.0, claim="x")) == (1.0, 3.0)


def test_a_grant_that_was_over_when_its_answer_was_read_was_not_held() -> None:
    assert span(acquired(end=6.0, deadline=4.0)) is None


def test_a_release_that_failed_says_that_the_grant_was_lost_before() -> None:
    checked = call("check", "a", 3.0, 3.0, claim="x")
    failed = call("release", "a", 9.0, 9.1, "failed", claim="x", error="LockLost")

    assert span(acquired(deadline=5.0), checked, failed) == (1.0, 3.0)


@pytest.mark.parametrize(("deadline", "end"), [(5.0, 5.0), (50.0, 9.0)])
def test_a_release_of_unknown_outcome_proves_no_hold_beyond_the_deadline(deadline: float, end: float) -> None:
    unknown = call("release", "a", 9.0, None, "unknown", claim="x")

    assert span(acquired(deadline=deadline), unknown) == (1.0, end)


def test_a_release_that_was_confirmed_proves_the_hold_until_then() -> None:
    assert span(acquired(deadline=5.0), call("release", "a", 9.0, 9.1, claim="x")) == (1.0, 9.0)


def test_a_reentrant_hold_ends_with_its_last_release() -> None:
    again = call("acquire", "a", 1.5, 1.6, claim="x", token=1, reentrant=True)
    inner, outer = call("release", "a", 2.0, 2.1, claim="x"), call("release", "a", 3.0, 3.1, claim="x")

    assert span(acquired(reentrant=True), again, inner, outer) == (1.0, 3.0)


def test_a_handed_over_hold_ends_when_it_is_adopted() -> None:
    adopted = call("adopt", "b", 2.0, 2.1, claim="y", source="x", token=2)
    found = holds(history(acquired(deadline=9.0), adopted, call("release", "b", 3.0, 3.1, claim="y")))

    assert [(hold.call.process, hold.start, hold.end) for hold in found] == [("a", 1.0, 2.0), ("b", 2.1, 3.0)]


def test_a_forced_break_ends_the_hold() -> None:
    assert span(acquired(deadline=9.0), call("break", "op", 2.0, 2.1, force=True)) == (1.0, 2.0)


def test_a_closed_client_holds_nothing() -> None:
    assert span(acquired(deadline=9.0), call("close", "a", 2.0, 2.1, name="", owner="")) == (1.0, 2.0)
