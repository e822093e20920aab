"""Several locks together: nothing of them stays held, whatever happens to one."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path

import pytest

import holdfast
from holdfast import aio


def test_a_member_that_was_released_by_itself_does_not_keep_the_others() -> None:
    with holdfast.connect("memory://member") as locks:
        with locks.lock_all("a", "b", "c") as grants:
            grants["c"].release()

        assert locks.list() == []


async def test_a_cancelled_release_gives_all_of_them_back(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    async with aio.connect(url) as locks:
        grants = await locks.lock_all("a", "b", "c").acquire()
        busy = sqlite3.connect(tmp_path / "locks.db", isolation_level=None)
        busy.execute("BEGIN IMMEDIATE")
        releasing = asyncio.create_task(grants.release())
        await asyncio.sleep(0.05)  # it waits for the file now, or will: either way it is cancelled
        releasing.cancel()
        busy.execute("ROLLBACK")
        busy.close()
        with pytest.raises(asyncio.CancelledError):
            await releasing

        assert await locks.list() == []


def test_the_answer_comes_in_time_when_the_file_is_busy(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    with holdfast.connect(url, ttl=30.0) as locks, holdfast.connect(url) as rival, rival.lock("d"):
        locks.lock("warm").acquire().release()
        busy = sqlite3.connect(tmp_path / "locks.db", isolation_level=None, check_same_thread=False)
        began = time.monotonic()
        busy.execute("BEGIN IMMEDIATE")
        with pytest.raises(holdfast.EngineUnavailable):
            locks.lock_all("a", "b", "c", "d").acquire(wait=0.5)
        took = time.monotonic() - began
        busy.execute("ROLLBACK")
        busy.close()

    assert took < 4.0
