"""The checker of what was given back, on good and on bad histories."""

from __future__ import annotations

import pytest

from holdfast.verify.checkers import released
from holdfast.verify.history import Call, Record
from tests.verify.told import call, held, history

Story = list[Record | list[Call]]


def looked(start: float, claim: str, *holders: str, waiters: tuple[str, ...] = (), process: str = "a") -> Call:
    value = {"holders": list(holders), "waiters": list(waiters)}
    return call("inspect", process, start, start + 0.1, claim=claim, value=value)


GOOD: dict[str, Story] = {
    "gone": [held("a", 1, 2, claim="s-1"), looked(3, "s-1")],
    "somebody else's": [held("a", 1, 2, claim="s-1"), looked(3, "s-1", "t-9", waiters=("s-2",))],
    "the look was under way": [held("a", 1, 2, claim="s-1"), looked(2.005, "s-1", "s-1")],
    "the release is not known to be done": [
        call("acquire", "a", 0, 1, claim="s-1"),
        call("release", "a", 2, 2.1, "unknown", claim="s-1"),
        looked(3, "s-1", "s-1"),
    ],
    "another client looked": [held("a", 1, 2, claim="s-1"), looked(3, "", "s-1", process="b")],
}
BAD: dict[str, Story] = {
    "still held": [held("a", 1, 2, claim="s-1"), looked(3, "s-1", "s-1")],
    "still in line": [held("a", 1, 2, claim="s-1"), looked(3, "s-1", "t-9", waiters=("s-1",))],
}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_gone_raises_no_alarm(name: str) -> None:
    assert released.check(history(*GOOD[name])).state in ("kept", "not tested")


@pytest.mark.parametrize("name", BAD)
def test_what_was_given_back_and_is_still_there_is_caught(name: str) -> None:
    finding = released.check(history(*BAD[name]))

    assert finding.state == "broken"
    assert finding.shortest is not None
    assert "still among its" in finding.shortest.summary


def test_where_nobody_looked_it_was_not_tested() -> None:
    assert released.check(history(held("a", 1, 2, claim="s-1"))).state == "not tested"
