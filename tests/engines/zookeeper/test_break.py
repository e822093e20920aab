"""A break of a hold that goes on elsewhere while it is broken."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

import holdfast
from tests.engines.zookeeper.patience import eventually


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("what", ["lock", "semaphore"])
def test_a_break_that_comes_upon_an_adoption_ends_the_adopted_hold(
    url: str, monkeypatch: pytest.MonkeyPatch, what: str, force: bool
) -> None:
    with ExitStack() as stack:
        sender, receiver, operator = (stack.enter_context(holdfast.connect(url, ttl=10.0)) for _ in range(3))
        sent = (sender.lock("k") if what == "lock" else sender.semaphore("k", limit=2)).acquire()
        text = sent.hand_over()
        adopted: list[holdfast.Grant] = []
        verbs: Any = operator._core.verbs
        real = verbs._note

        async def note(*args: Any) -> Any:
            if not adopted:
                adopted.append(receiver.adopt(text))
            return await real(*args)

        monkeypatch.setattr(verbs, "_note", note)

        assert operator.break_lock("k", kind=what, force=force) == 1
        assert operator.inspect("k", kind=what).holders == ()
        eventually(lambda: adopted[0].lost.is_set() and sent.lost.is_set())


def test_a_break_that_comes_upon_a_release_breaks_no_later_claim(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        holder, rival, operator = (stack.enter_context(holdfast.connect(url, ttl=10.0)) for _ in range(3))
        first = holder.lock("k").acquire()
        later: list[holdfast.Grant] = []
        verbs: Any = operator._core.verbs
        real = verbs._note

        async def note(*args: Any) -> Any:
            if not later:
                first.release()
                later.append(rival.lock("k").acquire())
            return await real(*args)

        monkeypatch.setattr(verbs, "_note", note)

        assert operator.break_lock("k", force=True) == 0
        later[0].release()
