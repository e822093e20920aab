"""What becomes of a worker that is cancelled, or whose engine forgets its tokens."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
from holdfast import aio
from holdfast.locks.cell import CellFront, encode
from holdfast.runtime.blocking import run


async def test_a_cancelled_worker_leaves_nothing_behind() -> None:
    async with aio.connect("memory://once-cancelled") as locks:
        began = asyncio.Event()

        async def work(grant: aio.Grant) -> str:
            began.set()
            await asyncio.Event().wait()
            return "never"

        working = asyncio.create_task(locks.once("k").run(work))
        await began.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

        assert await locks.list() == []
        assert await locks.once("k").run(lambda grant: "next", wait=0.0) == "next"


async def test_an_asyncio_worker_that_loses_its_place_is_cancelled_and_told() -> None:
    async with aio.connect("memory://once-lost") as locks, aio.connect("memory://once-lost") as rival:
        began = asyncio.Event()

        async def work(grant: aio.Grant) -> str:
            began.set()
            await asyncio.Event().wait()
            return "never"

        working = asyncio.create_task(locks.once("k").run(work))
        await began.wait()
        await rival.break_lock("k", kind="once", force=True)

        with pytest.raises(holdfast.LockLost):
            await asyncio.wait_for(working, 10.0)
        assert await rival.once("k").run(lambda grant: "next") == "next"


def test_tokens_that_went_back_are_noticed() -> None:
    with holdfast.connect("memory://once-back") as locks:
        future = 2**52
        # The mark of a worker whose token was higher than any that come now.
        run(CellFront(locks._core, "once", "k").write(encode({"by": future}), None, None))

        with pytest.raises(holdfast.StaleToken) as stale:
            locks.once("k").run(lambda grant: "never")
        assert stale.value.highest == future


def test_work_that_gives_its_grant_back_is_recorded_all_the_same() -> None:
    with holdfast.connect("memory://once-released") as locks:

        def work(grant: holdfast.Grant) -> str:
            grant.release()
            return "done"

        assert locks.once("k").run(work) == "done"
        assert locks.once("k").run(lambda grant: "never") == "done"
