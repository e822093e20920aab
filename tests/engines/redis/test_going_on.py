"""Whoever waits for a reply goes on where it is read, and is nobody's problem but its own."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
from holdfast import aio
from tests.faults.children import eventually
from tests.faults.interrupted import one_is_interrupted


def test_one_that_is_interrupted_keeps_nobody_from_its_reply(url: str) -> None:
    # More than go as one.
    one_is_interrupted(url, tasks=80, which=4)


async def test_a_task_that_is_cancelled_while_it_waits_for_a_reply_is_cancelled_in_its_own_words(url: str) -> None:
    async with aio.connect(url) as locks:
        await (await locks.lock("k").acquire()).release()
        task = asyncio.create_task(locks.lock("k").acquire())
        await asyncio.sleep(0)
        task.cancel("enough")
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await task
        assert (await locks.inspect("k")).holders == ()


async def test_a_wait_that_is_thrown_away_is_withdrawn(url: str) -> None:
    with holdfast.connect(url) as holder, holder.lock("k"):
        async with aio.connect(url, ttl=600.0) as locks:
            waiting = locks.lock("k").acquire()
            task = asyncio.create_task(waiting)
            await asyncio.to_thread(eventually, lambda: holder.inspect("k").waiters, "it did not get in line")
            waiting.close()
            await asyncio.to_thread(eventually, lambda: not holder.inspect("k").waiters, "its place is kept")
            task.cancel()
            await asyncio.wait({task})
