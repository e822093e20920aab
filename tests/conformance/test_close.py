"""A client is closed as a whole, whatever becomes of the caller of `close`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

from holdfast import aio
from tests.conformance.stage import eventually


class Cancelled:
    """Awaits a call, and cancels the running task at its nth suspension, or at every one from there on."""

    def __init__(self, work: Coroutine[Any, Any, None], nth: int, *, on_and_on: bool) -> None:
        self.work, self.nth, self.on_and_on, self.seen = work, nth, on_and_on, 0

    def __await__(self) -> Generator[Any, Any, None]:
        task = asyncio.current_task()
        assert task is not None
        step: Any = None
        try:
            step = self.work.send(None)
            while True:
                self.seen += 1
                if self.seen == self.nth or (self.on_and_on and self.seen > self.nth):
                    asyncio.get_running_loop().call_soon(task.cancel)
                try:
                    yield step
                except BaseException as error:  # noqa: BLE001 - it is for the call
                    step = self.work.throw(error)
                else:
                    step = self.work.send(None)
        except StopIteration:
            return


async def is_closed(locks: aio.Client, rival: aio.Client, name: str) -> None:
    """Everything is released, and nothing of the client runs any more."""
    taken = await rival.lock(name).acquire(wait=2.0)
    await taken.release()
    keeper = locks._core.keeper
    assert keeper is not None
    await eventually(keeper.done.is_set)
    await locks.close()


@pytest.mark.parametrize("on_and_on", [False, True], ids=["once", "on and on"])
async def test_a_close_that_is_cancelled_anywhere_is_finished(url: str, on_and_on: bool) -> None:
    async with aio.connect(url, ttl=30.0) as rival:
        nth, seen = 0, 1
        while nth < seen:
            nth += 1
            locks = await aio.connect(url, ttl=30.0)
            held = await locks.lock(f"k{nth}").acquire()
            closing = Cancelled(locks._core.close(), nth, on_and_on=on_and_on)
            await asyncio.wait({asyncio.ensure_future(_awaited(closing))})

            assert not held.valid
            await is_closed(locks, rival, f"k{nth}")
            seen = closing.seen
        assert nth > 1


async def _awaited(work: Cancelled) -> None:
    await work
