"""Threads and tasks that act as one owner, by `holdfast.owner`, share what they take."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

import holdfast
from holdfast import aio
from holdfast.locks import release
from tests.faults.injection import Moments, count_moments

PATIENCE = 0.02
"""How long a call is stopped for another one that may be waiting for it."""


def meeting(locks: holdfast.Client, errors: list[Exception]) -> Callable[[], None]:
    """What both threads do: hold the lock, and look whether they do."""
    lock = locks.lock("k", reentrant=True, wait=5.0)

    def work() -> None:
        try:
            with holdfast.owner("same"), lock as grant:
                grant.check()
        except holdfast.HoldfastError as error:
            errors.append(error)

    return work


def test_a_thread_that_takes_what_another_one_takes_or_gives_back_at_any_moment_leaves_it_its_grant() -> None:
    with holdfast.connect("memory://same-owner") as locks:
        errors: list[Exception] = []
        work = meeting(locks, errors)
        work()
        for at in range(count_moments(work)):
            thread = threading.Thread(target=work)

            def meet(_: str, thread: threading.Thread = thread) -> None:
                thread.start()
                thread.join(PATIENCE)

            stopped = Moments(at, meet)
            stopped.run(work)
            if thread.ident is not None:
                thread.join()

            assert errors == [], stopped.where
            assert locks.list() == [], stopped.where


async def test_a_task_that_takes_what_another_one_gives_back_waits_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    async with aio.connect("memory://same-owner-aio") as locks:
        given_back = release.give_back
        meets = asyncio.Event()

        async def slowly(*args: object) -> object:
            meets.set()
            await asyncio.sleep(0.05)
            return await given_back(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(release, "give_back", slowly)

        async def take(after: asyncio.Event | None) -> None:
            if after is not None:
                await after.wait()
            with holdfast.owner("same"):
                async with locks.lock("k", reentrant=True, wait=5.0) as grant:
                    grant.check()

        await asyncio.gather(take(None), take(meets))

        assert await locks.list() == []


def test_what_waits_only_for_itself_is_told_of_a_deadlock() -> None:
    with holdfast.connect("memory://same-owner-itself") as locks, holdfast.owner("same"), locks.semaphore("k", 1):
        with pytest.raises(holdfast.Deadlock):
            locks.semaphore("k", 1).acquire(wait=5.0)
