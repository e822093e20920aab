"""The checkers of what a fence protects: accepted writes never go back, and no update is lost."""

from __future__ import annotations

import pytest

from holdfast.verify.checkers import fence, updates
from holdfast.verify.history import Fault, Record
from tests.verify.told import call, history, pause, saw, wrote

IN_ORDER: dict[str, list[Record]] = {
    "tokens grow": [wrote("a", 1, 2, "x", token=1), wrote("b", 3, 4, "y", token=2)],
    "one holder writes twice": [wrote("a", 1, 2, "x", token=1), wrote("a", 3, 4, "y", token=1)],
    "the older one is refused": [wrote("b", 1, 2, "x", token=2), wrote("a", 3, 4, "y", "failed", token=1)],
    "the older one has no answer": [wrote("b", 1, 2, "x", token=2), wrote("a", 3, 4, "y", "unknown", token=1)],
    "they overlap": [wrote("b", 1, 3, "x", token=2), wrote("a", 2, 4, "y", token=1)],
    "two resources": [wrote("b", 1, 2, "x", token=2), wrote("a", 3, 4, "y", token=1, name="other")],
    "the resource counted them otherwise": [
        wrote("b", 1, 3, "x", token=2, version=2),
        wrote("a", 2, 4, "y", token=1, version=1),
    ],
}
GONE_BACK: dict[str, list[Record]] = {
    "an older one after a newer": [wrote("b", 1, 2, "x", token=2), wrote("a", 3, 4, "y", token=1)],
    "behind an overlap": [
        wrote("c", 0, 9, "z", token=3),
        wrote("b", 1, 2, "x", token=2),
        wrote("a", 3, 4, "y", token=1),
    ],
    "by the resource's own count": [
        wrote("b", 1, 3, "x", token=2, version=1),
        wrote("a", 2, 4, "y", token=1, version=2),
    ],
}


@pytest.mark.parametrize("name", IN_ORDER)
def test_writes_that_never_go_back_raise_no_alarm(name: str) -> None:
    assert fence.check(history(*IN_ORDER[name])).state == "kept"


@pytest.mark.parametrize("name", GONE_BACK)
def test_an_older_token_that_was_accepted_is_caught(name: str) -> None:
    assert fence.check(history(*GONE_BACK[name])).state == "broken"


def test_a_write_without_a_fence_is_not_the_fences() -> None:
    assert fence.check(history(wrote("a", 1, 2, "x", fenced=False))).state == "not tested"


COMPLETE: dict[str, list[Record]] = {
    "all is there": [wrote("a", 1, 2, "x"), wrote("b", 3, 4, "y"), saw("c", 5, 6, "x", "y")],
    "the read began before the answer": [wrote("a", 1, 3, "x"), saw("c", 2, 4)],
    "an unknown one is there": [wrote("a", 1, 2, "x", "unknown"), saw("c", 3, 4, "x")],
    "an unknown one is not there": [wrote("a", 1, 2, "x", "unknown"), saw("c", 3, 4)],
    "an unknown one comes late": [wrote("a", 1, 2, "x", "unknown"), saw("c", 3, 4), saw("c", 5, 6, "x")],
    "two reads at once may differ about an unknown one": [
        wrote("a", 1, 2, "x", "unknown"),
        saw("c", 3, 6, "x"),
        saw("d", 4, 5),
    ],
    "a refused one is not there": [wrote("a", 1, 2, "x", "failed"), saw("c", 3, 4)],
    "a read without an answer": [wrote("a", 1, 2, "x"), saw("b", 2, 3, "x"), call("read", "c", 3, None, "unknown")],
}
LOST: dict[str, list[Record]] = {
    "an acknowledged one is gone": [wrote("a", 1, 2, "x"), saw("c", 3, 4)],
    "a later one went over it": [wrote("a", 1, 2, "x"), wrote("b", 3, 4, "y"), saw("c", 5, 6, "y")],
    "it was there and is gone": [wrote("a", 1, 2, "x"), saw("b", 3, 4, "x"), saw("c", 5, 6)],
    "an unknown one was there and is gone": [
        wrote("a", 1, 2, "x", "unknown"),
        saw("b", 3, 4, "x"),
        saw("c", 5, 6),
    ],
    "a refused one is there": [wrote("a", 1, 2, "x", "failed"), saw("c", 3, 4, "x")],
}


@pytest.mark.parametrize("name", COMPLETE)
def test_updates_that_are_all_there_raise_no_alarm(name: str) -> None:
    assert updates.check(history(*COMPLETE[name])).state == "kept"


@pytest.mark.parametrize("name", LOST)
def test_an_update_that_is_lost_is_caught(name: str) -> None:
    assert updates.check(history(*LOST[name])).state == "broken"


def test_updates_that_nobody_read_again_were_not_tested() -> None:
    assert updates.check(history(wrote("a", 1, 2, "x"))).state == "not tested"


def test_updates_with_and_without_a_fence_are_told_apart() -> None:
    told = history(
        wrote("a", 1, 2, "x"), saw("c", 3, 4, "x"), wrote("a", 1, 2, "u", fenced=False, name="bare"),
        saw("c", 3, 4, name="bare"),
    )  # fmt: skip

    assert (updates.check(told).state, updates.check_unfenced(told).state) == ("kept", "broken")


def test_the_story_of_a_lost_update_names_who_wrote_over_it_and_the_pause_before_that() -> None:
    told = history(
        call("acquire", "b", 0, 0.5, claim="b1", token=1),
        pause("b", 0.8, 2.5),
        call("acquire", "a", 1, 1.1, claim="a1", token=2),
        wrote("a", 1.5, 2, "x", token=2, fenced=False, claim="a1"),
        wrote("b", 3, 4, "y", token=1, fenced=False, claim="b1"),
        saw("c", 5, 6, "y"),
        wrote("z", 5.5, 6.5, "z", fenced=False),
    )
    broken = updates.check_unfenced(told).shortest

    assert broken is not None
    assert broken.summary == "the update x of a to 'k' is lost; b (token 1) wrote over it"
    assert len(broken.records) == 6
    assert any(isinstance(record, Fault) for record in broken.records)
