"""Naming the holders of a lock: to a caller whose wait is over, however many wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast import aio
from tests.conformance.stage import eventually as soon

MANY = 50
FEW = 30
"""Requests of a client for one claim that is not granted: fewer than one for each of the waiters."""


async def test_a_timeout_names_the_holder_and_reads_no_node_of_the_waiters(url: str) -> None:
    async with aio.connect(url) as holder, aio.connect(url) as crowd, aio.connect(url) as locks:
        held = await holder.lock("k").acquire()
        turns = [asyncio.create_task(crowd.lock("k").acquire()) for _ in range(MANY)]
        await soon(lambda: len(crowd._core.waiting) == MANY)
        async with locks.lock("other"):
            pass
        sent: list[None] = []
        engine: Any = locks._core.engine
        engine.count_requests(lambda: sent.append(None))
        with pytest.raises(holdfast.NotAcquired) as refused:
            await locks.lock("k").acquire(wait=0.05)

        assert [party.token for party in refused.value.holders] == [held.token]
        assert len(sent) < FEW
        for turn in turns:
            turn.cancel()
        await asyncio.gather(*turns, return_exceptions=True)


@pytest.mark.parametrize("what", ["lock", "readers", "semaphore"])
async def test_the_holders_are_those_that_a_look_at_the_whole_queue_shows(url: str, what: str) -> None:
    async with aio.connect(url) as locks, aio.connect(url) as other:

        def lock(client: aio.Client, exclusive: bool = False) -> Any:
            if what == "readers":
                return client.rwlock("k").write() if exclusive else client.rwlock("k").read()
            return client.lock("k") if what == "lock" else client.semaphore("k", limit=20)

        async def hold_for_ever(exclusive: bool) -> None:
            async with lock(other, exclusive):
                await asyncio.Event().wait()

        held = [await lock(locks).acquire() for _ in range(1 if what == "lock" else 20)]
        turns = [asyncio.create_task(hold_for_ever(number == 0)) for number in range(4)]
        await soon(lambda: len(other._core.waiting) == 4)
        for grant in held[3:7]:
            await grant.release()
        if what == "semaphore":
            await soon(lambda: not other._core.waiting)
        core: Any = other._core
        kind = "holdfast.semaphore" if what == "semaphore" else "holdfast.lock"
        shown = await core.verbs.inspect(kind, "k", core.until())
        holders = await core.verbs.holders(kind, "k", core.until())

        assert len(shown.holders) == {"lock": 1, "readers": 16, "semaphore": 20}[what]
        assert [party.claim for party in holders] == [party.claim for party in shown.holders]
        for turn in turns:
            turn.cancel()
        await asyncio.gather(*turns, return_exceptions=True)


async def test_a_holder_that_goes_meanwhile_is_not_named_but_the_next_one(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aio.connect(url) as locks, aio.connect(url) as other:
        held = await locks.lock("k").acquire()
        next_one = asyncio.create_task(other.lock("k").acquire())
        await soon(lambda: len(other._core.waiting) == 1)
        core: Any = other._core
        children = core.verbs.children

        async def slow_children(*args: Any, **options: Any) -> list[str]:
            found: list[str] = await children(*args, **options)
            await held.release()
            await next_one
            return found

        monkeypatch.setattr(core.verbs, "children", slow_children)
        (named,) = await core.verbs.holders("holdfast.lock", "k", core.until())

        assert named.token == (await next_one).token
        await next_one.result().release()
