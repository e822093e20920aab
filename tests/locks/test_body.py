"""A body whose lock is lost ends with LockLost, whatever it did with cancellations before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast import LockLost, aio


async def handles_a_failed_group() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
    except* ValueError:
        pass


async def handles_a_timeout() -> None:
    try:
        async with asyncio.timeout(0.001):
            await asyncio.sleep(60.0)
    except TimeoutError:
        return


async def swallows_a_cancellation() -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_soon(task.cancel)
    try:
        await asyncio.sleep(60.0)
    except asyncio.CancelledError:
        return


async def does_nothing() -> None:
    return


async def never() -> None:
    await asyncio.Event().wait()


async def never_in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(never())


BEFORE = [handles_a_failed_group, handles_a_timeout, swallows_a_cancellation, does_nothing]


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("waits", [never, never_in_a_group])
async def test_a_loss_is_told_as_one(
    before: Callable[[], Awaitable[None]], waits: Callable[[], Awaitable[None]]
) -> None:
    async with aio.connect("memory://body") as locks, aio.connect("memory://body") as rival:
        inside = asyncio.Event()

        async def body() -> None:
            async with locks.lock("k"):
                await before()
                inside.set()
                await waits()

        working = asyncio.create_task(body())
        await inside.wait()
        await rival.break_lock("k", force=True)

        with pytest.raises(LockLost):
            await asyncio.wait_for(working, 10.0)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("first", ["loss", "cancellation"])
async def test_a_cancellation_from_outside_stays_one_beside_a_loss(
    before: Callable[[], Awaitable[None]], first: str
) -> None:
    async with aio.connect("memory://outside") as locks:
        inside = asyncio.Event()
        held: list[aio.Grant] = []

        async def body() -> None:
            async with locks.lock("k") as grant:
                held.append(grant)
                await before()
                inside.set()
                await never()

        working = asyncio.create_task(body())
        await inside.wait()
        ways: list[Callable[[], object]] = [lambda: held[0]._hold.lose("the test says so"), working.cancel]
        for way in ways if first == "loss" else reversed(ways):
            way()
        # Both arrive in the same turn of the loop: the callback of the loss is called in the next one.
        if first == "loss":
            await asyncio.sleep(0)
            working.cancel()

        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(working, 10.0)
