"""Whoever waits for a reply goes on where it is read, and is nobody's problem but its own."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
from holdfast import aio
from tests.faults.children import eventually

TASKS = 80
"""More than go as one."""
INTERRUPTED = 4


def test_one_that_is_interrupted_keeps_nobody_from_its_reply(url: str) -> None:
    """An interrupt stops the loop in the middle of an answer to many; whoever runs it again finds the rest of it."""
    released = 0

    async def take_and_release(locks: aio.Client, number: int) -> None:
        nonlocal released
        grant = await locks.lock(f"k{number}").acquire()
        await grant.release()
        if number == INTERRUPTED:
            raise KeyboardInterrupt
        released += 1

    async def start() -> tuple[aio.Client, list[asyncio.Task[None]]]:
        locks = await aio.connect(url)
        return locks, [asyncio.create_task(take_and_release(locks, number)) for number in range(TASKS)]

    loop = asyncio.new_event_loop()
    try:
        locks, tasks = loop.run_until_complete(start())
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(asyncio.wait(tasks))
        at_once = released
        others = [task for task in tasks if not task.done()]
        loop.run_until_complete(asyncio.wait_for(asyncio.gather(*others), 10.0))
        loop.run_until_complete(locks.close())
    finally:
        loop.close()

    assert isinstance(tasks[INTERRUPTED].exception(), KeyboardInterrupt)
    assert at_once < released == TASKS - 1


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
