"""Whoever waits for a reply goes on where it is read, and is nobody's problem but its own."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import aio
from tests.servers.lock_server import LockServer

TASKS = 40
INTERRUPTED = 36
"""Among the last, so that no later reply brings the rest along."""


def test_one_that_is_interrupted_keeps_nobody_from_its_reply(server: LockServer) -> None:
    """An interrupt stops the loop among the replies of one read; whoever runs it again finds the rest of them."""
    released = 0

    async def take_and_release(locks: aio.Client, number: int) -> None:
        nonlocal released
        grant = await locks.lock(f"k{number}").acquire()
        await grant.release()
        if number == INTERRUPTED:
            raise KeyboardInterrupt
        released += 1

    async def start() -> tuple[aio.Client, list[asyncio.Task[None]]]:
        locks = await aio.connect(server.url, ttl=600.0)
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
