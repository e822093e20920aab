"""The keeper's errands: done again and again, whatever one of them raises, until they are dropped."""

from __future__ import annotations

import threading

import holdfast
from holdfast.errors import EngineUnavailable
from holdfast.locks.errand import Errand
from holdfast.locks.keeper import Keeper
from tests.faults.children import eventually


def test_an_errand_that_fails_is_done_again() -> None:
    tries: list[int] = []

    async def fail(keeper: Keeper) -> None:
        tries.append(1)
        raise EngineUnavailable("memory://", "a test", "not done")

    with holdfast.connect("memory://errand-fails") as locks:
        locks._core.start_keeper().add_errand(Errand("a test", 0.01, fail))
        eventually(lambda: len(tries) > 3, "it was not done again")


def test_an_errand_that_was_dropped_is_done_no_more() -> None:
    done: list[int] = []

    async def work(keeper: Keeper) -> None:
        done.append(1)

    with holdfast.connect("memory://errand-dropped") as locks:
        keeper = locks._core.start_keeper()
        errand, other = Errand("a test", 0.01, work), threading.Event()

        async def later(keeper: Keeper) -> None:
            other.set()

        keeper.add_errand(errand)
        eventually(lambda: done, "it was never done")
        keeper.drop_errand(errand)
        eventually(lambda: errand.due > 0.0, "it is under way")
        # One that was under way may have ended since; after that, nothing but the other errand is done.
        keeper.add_errand(Errand("another", 0.01, later))
        assert other.wait(10.0)
        seen = len(done)
        other.clear()
        assert other.wait(10.0)
        assert len(done) == seen


def test_an_errand_does_not_delay_a_heartbeat() -> None:
    with holdfast.connect("memory://errand-slow", ttl=1.0) as locks:

        async def slow(keeper: Keeper) -> None:
            # As one that waits for an engine: no longer than it may.
            await keeper.io.wait(keeper.io.signal(), keeper.before_beat())

        with locks.lock("k") as grant:
            locks._core.start_keeper().add_errand(Errand("a test", 0.0, slow))
            deadline = grant._hold.deadline
            eventually(lambda: grant._hold.deadline > deadline + 1.5, "there was no heartbeat")
            grant.check()


def test_an_errand_of_a_closed_client_opens_no_session() -> None:
    with holdfast.connect("memory://errand-closed") as other:
        locks = holdfast.connect("memory://errand-closed")
        began, refused = threading.Event(), threading.Event()

        async def open_late(keeper: Keeper) -> None:
            began.set()
            await keeper.io.wait(keeper.client.io.signal(), keeper.io.now() + 0.2)
            try:
                await keeper.session_now()
            except EngineUnavailable:
                refused.set()
                raise

        locks._core.start_keeper().add_errand(Errand("a test", 60.0, open_late))
        assert began.wait(10.0)
        locks.close()

        assert refused.wait(10.0)
        table = other._core.engine.table  # type: ignore[attr-defined]
        assert list(table.rows.sessions) == []
