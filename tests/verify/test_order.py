"""The checker of order, on good and on bad histories."""

from __future__ import annotations

import pytest

from holdfast.verify.checkers import order
from holdfast.verify.history import Call, Record
from tests.verify.told import call, held, history

Story = list[Record | list[Call]]
GAVE_UP = call("acquire", "a", 0, 3, "failed", queued=0.1, wait=3.0, error="NotAcquired")

GOOD: dict[str, Story] = {
    "in turn": [held("a", 5, 6, 1, asked=0, queued=0.1), held("b", 7, 8, 2, asked=0.2, queued=0.3)],
    "who arrived first is not known": [held("a", 5, 6, 2, asked=0, queued=0.3), held("b", 3, 4, 1, asked=0.2)],
    "nobody stood in line before": [held("a", 5, 6, 2, asked=0), held("b", 3, 4, 1, asked=0.2)],
    "the one in line was answered late": [held("a", 5, 6, 1, asked=0, queued=0.1), held("b", 4, 4.5, 2, asked=0.2)],
    "readers overtake readers": [
        held("a", 5, 6, 2, asked=0, queued=0.1, mode="shared"),
        held("b", 3, 4, 1, asked=0.2, mode="shared"),
    ],
    "another name": [held("a", 5, 6, 2, asked=0, queued=0.1), held("b", 3, 4, 1, asked=0.2, name="other")],
    "the first one gave up before": [GAVE_UP, held("b", 3.1, 4, 1, asked=0.2)],
    "the second one asked after": [GAVE_UP, held("b", 5, 6, 1)],
    "a holder enters again": [
        held("b", 0, 9, 1, claim="x", reentrant=True),
        held("a", 10, 11, 2, asked=1, queued=1.1),
        held("b", 3, 4, 1, claim="x", reentrant=True),
    ],
    "permits of one release": [
        held("a", 5, 6, 2, asked=0, queued=0.1, kind="semaphore", limit=2, slot=0),
        held("b", 3, 4, 1, asked=0.2, kind="semaphore", limit=2, slot=1),
    ],
    "the first one was never answered": [
        call("acquire", "a", 0, None, "unknown", queued=0.1, wait=3.0),
        held("b", 3, 4, 1, asked=0.2),
        held("c", 9, 10, 2, asked=5, queued=5.1),
    ],
    "the first one was interrupted": [
        call("acquire", "a", 0, 9, "failed", queued=0.1, wait=9.0, error="CancelledError"),
        held("b", 3, 4, 1, asked=0.2),
        held("c", 9, 10, 2, asked=5, queued=5.1),
    ],
}
BAD: dict[str, Story] = {
    "the later one is granted first": [
        held("a", 5, 6, 2, asked=0, queued=0.1),
        held("b", 3, 4, 1, asked=0.2, queued=0.3),
    ],
    "one that does not wait goes first": [held("a", 5, 6, 2, asked=0, queued=0.1), held("b", 3, 4, 1, asked=2.9)],
    "a reader before a writer": [
        held("a", 5, 6, 2, asked=0, queued=0.1),
        held("b", 3, 4, 1, asked=0.2, mode="shared", kind="rwlock"),
    ],
    "the first one gets nothing at all": [GAVE_UP, held("b", 1, 2, 1, asked=0.2)],
    "the first one gets no permit at all": [
        call("acquire", "a", 0, 3, "failed", queued=0.1, wait=3.0, error="NotAcquired", kind="semaphore", limit=2),
        held("b", 1, 2, 1, asked=0.2, kind="semaphore", limit=2, slot=0),
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_claims_that_are_served_in_order_raise_no_alarm(name: str) -> None:
    assert order.check(history(*GOOD[name])).state in ("kept", "not tested")


@pytest.mark.parametrize("name", BAD)
def test_a_claim_that_was_overtaken_is_caught(name: str) -> None:
    assert order.check(history(*BAD[name])).state == "broken"


def test_where_nobody_stood_in_line_order_was_not_tested() -> None:
    assert order.check(history(held("a", 1, 2, 1))).state == "not tested"
