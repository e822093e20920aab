"""Every engine in another event loop than asyncio's own, and a client in another loop than its own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvloop

import holdfast
from holdfast import aio


async def _pass_on(url: str) -> list[int]:
    """The tokens of two clients, of which the second has to wait."""
    async with aio.connect(url) as first, aio.connect(url) as second:
        held = await first.lock("k").acquire()
        waiting = asyncio.create_task(second.lock("k").acquire(wait=30))
        async with asyncio.timeout(30):
            while True:
                if second._core.waiting:
                    break
                await asyncio.sleep(0.01)
        await held.release()
        return [held.token, (await waiting).token]


@pytest.mark.any_connection
def test_a_lock_is_granted_and_passed_on_in_uvloop(url: str) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        first, second = runner.run(_pass_on(url))

    assert first < second


@pytest.mark.any_connection
def test_a_second_loop_is_refused_and_leaves_nothing_held(url: str) -> None:
    """A program that calls `asyncio.run` twice and keeps its client."""

    async def begin() -> tuple[aio.Client, aio.Grant]:
        locks = await aio.connect(url)
        return locks, await locks.lock("held").acquire()

    async def go_on(locks: aio.Client) -> None:
        async with locks.lock("k"):
            raise AssertionError("the body ran")

    async def end(locks: aio.Client, grant: aio.Grant) -> None:
        async with locks.lock("k", wait=0.0):
            assert grant.valid
        await grant.release()
        await locks.close()

    with asyncio.Runner() as first, asyncio.Runner() as second:
        locks, grant = first.run(begin())
        with pytest.raises(holdfast.HoldfastError, match="connect again in this loop"):
            second.run(go_on(locks))
        first.run(end(locks, grant))


async def _take_and_give_back(url: str) -> None:
    """With all threads of the loop's executor busy: the application may fill it with work of its own."""
    free, loop = threading.Event(), asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    busy = [loop.run_in_executor(None, free.wait) for _ in range(2)]
    try:
        async with asyncio.timeout(30), aio.connect(url) as locks, locks.lock("k", wait=5.0):
            assert not any(work.done() for work in busy)
    finally:
        free.set()
        await asyncio.gather(*busy)


@pytest.mark.any_connection
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_busy_executor_keeps_no_client_from_its_engine(url: str, host: str) -> None:
    asyncio.run(_take_and_give_back(url.replace("127.0.0.1", host)))
