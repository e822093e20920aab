"""Many tasks of one client, one of which is interrupted as its reply comes."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import aio


def one_is_interrupted(url: str, tasks: int, which: int) -> None:
    """An interrupt stops the loop among the replies of one read; whoever runs it again finds the rest of them."""
    released = 0

    async def take_and_release(locks: aio.Client, number: int) -> None:
        nonlocal released
        grant = await locks.lock(f"k{number}").acquire()
        await grant.release()
        if number == which:
            raise KeyboardInterrupt
        released += 1

    async def start() -> tuple[aio.Client, list[asyncio.Task[None]]]:
        locks = await aio.connect(url, ttl=600.0)
        return locks, [asyncio.create_task(take_and_release(locks, number)) for number in range(tasks)]

    loop = asyncio.new_event_loop()
    try:
        locks, begun = loop.run_until_complete(start())
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(asyncio.wait(begun))
        at_once = released
        others = [task for task in begun if not task.done()]
        loop.run_until_complete(asyncio.wait_for(asyncio.gather(*others), 10.0))
        loop.run_until_complete(locks.close())
    finally:
        loop.close()

    assert isinstance(begun[which].exception(), KeyboardInterrupt)
    assert at_once < released == tasks - 1
