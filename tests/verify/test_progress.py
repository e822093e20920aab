"""The checkers of progress and of leaks, on good and on bad histories."""

from __future__ import annotations

import pytest

from holdfast.verify.checkers import leaks, progress
from holdfast.verify.history import Call, Fault, Note, Record
from tests.verify.told import call, healed, held, history

Story = list[Record | list[Call]]
END = Note("end", 30)

GOOD: dict[str, Story] = {
    "it is granted soon": [held("a", 12, 13, asked=5)],
    "it stood still before healing only": [held("a", 11, 29, asked=0)],
    "one after the other": [held("a", start, start + 1, asked=start - 3) for start in range(13, 28, 4)],
    "a long hold": [held("a", 11, 29), call("acquire", "b", 12, None, "unknown")],
    "given up soon": [call("acquire", "a", 12, 14, "failed", error="NotAcquired")],
    "asked for now and then": [call("acquire", "a", at, at + 1, "failed") for at in range(11, 29, 3)],
    "whoever asked was killed": [call("acquire", "a", 9, None, "unknown"), Fault("kill", "a", 11)],
    "a lock under a long subtree": [
        held("a", 11, 29, name="db", subtree=True),
        call("acquire", "b", 12, None, "unknown", name="db/users"),
    ],
    "a subtree over a long lock": [
        held("a", 11, 29, name="db/users"),
        call("acquire", "b", 12, None, "unknown", name="db", subtree=True),
    ],
}
BAD: dict[str, Story] = {
    "never answered": [call("acquire", "a", 12, None, "unknown")],
    "since before healing": [call("acquire", "a", 2, None, "unknown")],
    "answered too late": [held("a", 28, 29, asked=12)],
    "asked for again and again": [call("acquire", "a", at, at + 0.9, "failed") for at in range(11, 29)],
    "after a while": [held("a", 12, 13), call("acquire", "b", 12.5, 29, "failed")],
    "one of two names": [held("a", 11, 29), call("acquire", "b", 12, None, "unknown", name="other")],
    "a holder that was lost does not count": [
        call("acquire", "a", 9, 10, claim="x", deadline=12.0),
        call("lost", "a", 29, 29, claim="x", deadline=12.0),
        call("acquire", "b", 12, None, "unknown"),
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_lock_that_goes_on_raises_no_alarm(name: str) -> None:
    assert progress.check(history(healed(10, 5), END, *GOOD[name])).state != "broken"


@pytest.mark.parametrize("name", BAD)
def test_a_lock_that_stands_still_after_healing_is_caught(name: str) -> None:
    assert progress.check(history(healed(10, 5), END, *BAD[name])).state == "broken"


@pytest.mark.parametrize(
    "records",
    [
        [END, held("a", 12, 13)],
        [healed(10, 5), END],
        [healed(10, 5), Note("end", 12), call("acquire", "a", 11, None, "unknown")],
    ],
    ids=["no healing", "nobody asked", "the run was too short"],
)
def test_progress_that_could_not_be_seen_was_not_tested(records: Story) -> None:
    assert progress.check(history(*records)).state == "not tested"


def test_a_run_may_end_soon_once_everything_has_gone_on() -> None:
    assert progress.check(history(healed(10, 5), Note("end", 12), held("a", 11, 11.5))).state == "kept"


def looked(at: float, *, holders: tuple[str, ...] = (), waiters: tuple[str, ...] = (), name: str = "k") -> Call:
    return call("inspect", "judge", at, at, value={"holders": list(holders), "waiters": list(waiters)}, name=name)


def test_an_empty_lock_has_no_leak() -> None:
    assert leaks.check(history(END, looked(31))).state == "kept"


def test_what_was_held_before_the_end_is_no_leak() -> None:
    assert leaks.check(history(looked(20, holders=("a",)), END, looked(31))).state == "kept"


def test_what_is_gone_at_the_last_look_is_no_leak() -> None:
    assert leaks.check(history(END, looked(31, holders=("a",)), looked(33))).state == "kept"


@pytest.mark.parametrize("look", [looked(31, holders=("x",)), looked(31, waiters=("x",))], ids=["held", "queued"])
def test_what_is_left_behind_is_caught_with_the_call_that_left_it(look: Call) -> None:
    ghost = call("acquire", "a", 5, None, "unknown", claim="x")
    finding = leaks.check(history(ghost, held("b", 1, 2), END, look, looked(31, name="other")))

    assert finding.state == "broken"
    assert finding.shortest is not None
    assert ghost in finding.shortest.records


def test_where_nobody_looked_leaks_were_not_tested() -> None:
    assert leaks.check(history(END)).state == "not tested"
