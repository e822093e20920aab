"""The checker of tokens, on good and on bad histories."""

from __future__ import annotations

import pytest

from holdfast.verify.checkers import tokens
from holdfast.verify.history import Call, Fault, Record
from tests.verify.told import call, held, history

Story = list[Record | list[Call]]

GOOD: dict[str, Story] = {
    "they grow": [held("a", 1, 2, 1), held("b", 3, 4, 2), held("a", 5, 6, 9)],
    "the one that asked first is granted last": [held("b", 3, 4, 2, asked=0.5), held("a", 1, 2, 1, asked=0.9)],
    "names of their own": [held("a", 1, 2, 5), held("b", 3, 4, 2, name="other")],
    "readers in any order": [held("a", 1, 3, 5, mode="shared"), held("b", 2, 4, 4, mode="shared")],
    "a re-entry keeps its token": [
        held("a", 1, 4, 5, claim="x", reentrant=True),
        held("a", 2, 3, 5, claim="x", reentrant=True),
    ],
    "slots of their own": [
        held("a", 1, 3, 5, kind="semaphore", limit=2, slot=0),
        held("b", 2, 4, 4, kind="semaphore", limit=2, slot=1),
    ],
    "a grant that was over when its answer was read": [
        call("acquire", "a", 0, 9, token=1, claim="x", deadline=3.0),
        held("b", 5, 6, 2),
    ],
    "two that were granted together, on both sides of a cut, and answered in the other order": [
        held("a", 1.1, 3, 5, asked=0.9),
        held("b", 1.2, 3, 4, asked=0.9),
    ],
    "an answer that never came": [call("acquire", "a", 0, None, "unknown", claim="x"), held("b", 5, 6, 2)],
}

BAD: dict[str, Story] = {
    "a token comes again": [held("a", 1, 2, 1), held("b", 3, 4, 1)],
    "a token of the past": [held("a", 1, 2, 7), Fault("restart", "server", 2, 3), held("b", 3, 4, 1)],
    "not the last one is the highest": [held("a", 1, 2, 5), held("b", 3, 4, 9), held("c", 5, 6, 7)],
    "a reader below the writer before it": [held("a", 1, 2, 5), held("b", 3, 4, 4, mode="shared")],
    "a writer below a reader before it": [held("a", 1, 2, 5, mode="shared"), held("b", 3, 4, 4)],
    "a reader hides behind a reader": [
        held("w", 1, 2, 5),
        held("a", 3, 4, 9, mode="shared"),
        held("b", 3, 4, 4, mode="shared"),
    ],
    "one slot goes back": [
        held("a", 1, 2, 5, kind="semaphore", limit=2, slot=0),
        held("b", 3, 4, 4, kind="semaphore", limit=2, slot=0),
    ],
    "two that were granted together, the second of which asked after the first had its answer": [
        held("a", 1, 3, 5),
        held("b", 2, 4, 4, asked=1.5),
    ],
    "one that had asked before, and was granted after the other's end": [
        held("a", 1, 2, 5),
        held("b", 3, 4, 4, asked=0.5),
    ],
    "along a path": [held("a", 1, 2, 5, name="db", subtree=True), held("b", 3, 4, 4, name="db/users")],
    "up a path": [held("a", 1, 2, 5, name="db/users"), held("b", 3, 4, 4, name="db", subtree=True)],
    "an adopter is not above its sender": [
        call("acquire", "a", 0, 1, claim="x", token=5),
        call("adopt", "b", 2, 3, claim="y", source="x", token=5),
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_tokens_that_grow_raise_no_alarm(name: str) -> None:
    assert tokens.check(history(*GOOD[name])).state == "kept"


@pytest.mark.parametrize("name", BAD)
def test_a_token_that_does_not_grow_is_caught(name: str) -> None:
    assert tokens.check(history(*BAD[name])).state == "broken"


def test_grants_without_tokens_test_nothing() -> None:
    assert tokens.check(history(held("a", 1, 2))).state == "not tested"


def test_the_story_of_a_token_has_the_fault_that_came_between() -> None:
    broken = tokens.check(history(*BAD["a token of the past"])).shortest

    assert broken is not None
    assert broken.summary == "token 1 of b is below token 7, which a was given for 'k' before"
    assert [record.what for record in broken.records if isinstance(record, Fault)] == ["restart"]
