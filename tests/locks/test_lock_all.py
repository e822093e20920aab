"""Several locks together: nothing of them stays held, whatever happens to one."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path

import pytest

import holdfast
from holdfast import aio
from tests.faults.children import eventually


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


def test_on_lost_is_called_for_each_of_them() -> None:
    with holdfast.connect("memory://told") as locks, holdfast.connect("memory://told") as operator:
        told: list[str] = []
        locks.lock_all("a", "b", on_lost=lambda grant: told.append(grant.name)).acquire()
        operator.break_lock("b")

        eventually(lambda: sorted(told) == ["a", "b"], "not all were told")


def test_what_is_released_twice_is_not_taken_from_whoever_entered_before() -> None:
    with holdfast.connect("memory://twice") as locks, locks.lock("a", reentrant=True) as outer:
        with locks.lock_all("a", "b", reentrant=True) as inner:
            inner.release()

        assert outer.valid


def test_what_was_held_together_is_lost_by_itself_afterwards() -> None:
    with holdfast.connect("memory://untied") as locks, holdfast.connect("memory://untied") as operator:
        a, b = (locks.lock(name, reentrant=True).acquire() for name in "ab")
        with locks.lock_all("a", "b", reentrant=True):
            pass
        operator.break_lock("a")  # returns when all that is done because of the loss has been done

        assert not a.valid
        assert b.valid
        b.release()
