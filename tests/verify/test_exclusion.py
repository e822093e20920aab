"""The checker of exclusion, on good and on bad histories."""

from __future__ import annotations

import pytest

from holdfast.verify.checkers import exclusion
from holdfast.verify.finding import story
from holdfast.verify.history import Call, Fault, Record
from tests.verify.told import call, held, history, pause

Story = list[Record | list[Call]]

GOOD: dict[str, Story] = {
    "one after the other": [held("a", 1, 2), held("b", 2.05, 3)],
    "the next one is granted while the release is under way": [held("a", 1, 2), held("b", 2.001, 3)],
    "the answer to the first was slow": [held("a", 1, 2, asked=0), held("b", 2.5, 3, asked=0.1)],
    "the next one is granted at the moment of the release": [held("a", 1, 2), held("b", 2, 3)],
    "two names": [held("a", 1, 3), held("b", 2, 4, name="other")],
    "two kinds": [held("a", 1, 3), held("b", 2, 4, kind="election")],
    "readers together": [held("a", 1, 3, mode="shared"), held("b", 2, 4, mode="shared")],
    "a re-entry": [held("a", 1, 4, reentrant=True), held("a", 2, 3, reentrant=True)],
    "as many as there are permits": [
        held("a", 1, 3, kind="semaphore", limit=2, slot=0),
        held("b", 2, 4, kind="semaphore", limit=2, slot=1),
    ],
    "a permit changes hands": [
        held("a", 1, 2, kind="semaphore", limit=1, slot=0),
        held("b", 2.1, 4, kind="semaphore", limit=1, slot=0),
    ],
    "a subtree beside another": [held("a", 1, 3, name="db", subtree=True), held("b", 2, 4, name="dbx/users")],
    "a later subtree beside another": [held("a", 1, 3, name="dbx/users"), held("b", 2, 4, name="db", subtree=True)],
    "a holder that was stopped past its ttl": [
        call("acquire", "a", 0.5, 1, claim="x", deadline=4.0),
        pause("a", 2, 30),
        held("b", 6, 40),
        call("lost", "a", 30, 30, claim="x", deadline=4.0),
    ],
    "a killed holder": [call("acquire", "a", 0.5, 1, claim="x", deadline=9), Fault("kill", "a", 2), held("b", 3, 4)],
    "an acquire that was never answered": [call("acquire", "a", 0.5, None, "unknown", claim="x"), held("b", 3, 4)],
    "an acquire whose outcome is unknown": [call("acquire", "a", 0.5, 2, "unknown", claim="x"), held("b", 3, 4)],
}

BAD: dict[str, Story] = {
    "two at once": [held("a", 1, 3), held("b", 2, 4)],
    "one within the other": [held("a", 1, 9), held("b", 2, 3)],
    "a writer among readers": [held("a", 1, 3, mode="shared"), held("b", 2, 4)],
    "a reader with a writer": [held("a", 1, 3), held("b", 2, 4, mode="shared", kind="rwlock")],
    "one owner twice without reentrancy": [held("a", 1, 3), held("a", 2, 4)],
    "two owners of one process": [held("a", 1, 3, owner="a/1"), held("a", 2, 4, owner="a/2")],
    "reentrancy of two owners": [
        held("a", 1, 3, reentrant=True),
        held("b", 2, 4, reentrant=True),
    ],
    "one slot twice": [
        held("a", 1, 3, kind="semaphore", limit=2, slot=0),
        held("b", 2, 4, kind="semaphore", limit=2, slot=0),
    ],
    "more than there are permits": [held(process, 1, 3, kind="semaphore", limit=2) for process in ("a", "b", "c")],
    "a lock under a subtree": [held("a", 1, 3, name="db", subtree=True), held("b", 2, 4, name="db/users")],
    "a subtree over a lock": [held("a", 1, 3, name="db/users"), held("b", 2, 4, name="db", subtree=True)],
    "the deadline of the first had not passed": [
        call("acquire", "a", 0.5, 1, claim="x", deadline=4.0),
        held("b", 3.5, 40),
        call("lost", "a", 30, 30, claim="x", deadline=4.0),
    ],
    "a short hold behind a long one": [held("a", 1, 90), held("b", 100, 101), held("c", 100.5, 102)],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_history_that_keeps_exclusion_raises_no_alarm(name: str) -> None:
    finding = exclusion.check(history(*GOOD[name]))

    assert finding.state == "kept", finding.shortest and story(finding.shortest)


@pytest.mark.parametrize("name", BAD)
def test_a_history_that_breaks_exclusion_is_caught(name: str) -> None:
    assert exclusion.check(history(*BAD[name])).state == "broken"


def test_without_a_hold_exclusion_was_not_tested() -> None:
    assert exclusion.check(history(call("acquire", "a", 0, 1, "failed"))).state == "not tested"


def test_the_story_of_a_violation_names_both_holders_and_the_fault_between_them() -> None:
    told = history(
        call("acquire", "a", 0.5, 1, claim="x", deadline=4.0, token=7),
        pause("a", 2, 30),
        pause("z", 2, 30),
        held("b", 3.5, 40, token=8),
        held("z", 50, 60),
        call("lost", "a", 30, 30, claim="x", deadline=4.0),
    )
    broken = exclusion.check(told).shortest

    assert broken is not None
    assert broken.summary == "b (token 8) and a (token 7) both held 'k' for 0.5000 s"
    assert {getattr(record, "process", "") or getattr(record, "target", "") for record in broken.records} == {"a", "b"}
    assert "FAULT pause a" in "\n".join(story(broken))


def test_the_shortest_story_is_the_one_that_is_told() -> None:
    told = history(
        *[held(process, 1, 9, kind="semaphore", limit=3, name="s") for process in ("a", "b", "c", "d")],
        held("e", 20, 30),
        held("f", 25, 35),
    )
    broken = exclusion.check(told).shortest

    assert broken is not None
    assert "'k'" in broken.summary
