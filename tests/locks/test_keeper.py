"""The keeper: heartbeats come first, and nothing keeps it busy."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.core.table import rows
from holdfast.core.table.commands import SessionOver
from holdfast.model import Claim
from holdfast.runtime.blocking import ThreadSignal, run
from tests.faults.children import eventually


def test_late_withdrawals_do_not_delay_the_news_of_a_loss(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    with holdfast.connect(url, ttl=2.0) as locks:
        lost = threading.Event()
        grant = locks.lock("k", on_lost=lambda _: lost.set()).acquire()
        others = [locks.lock(f"other-{number}").acquire() for number in range(6)]
        busy = sqlite3.connect(tmp_path / "locks.db", isolation_level=None)
        busy.execute("BEGIN IMMEDIATE")
        keeper = locks._core.start_keeper()
        for other in others:
            keeper.withdraw(other._hold.claim, unanswered=False)
        heard = lost.wait(5.0)
        busy.execute("ROLLBACK")
        busy.close()

        assert heard
        assert not grant.valid


def test_without_a_session_a_notice_does_not_keep_the_keeper_busy() -> None:
    with holdfast.connect("memory://idle") as locks:
        locks.lock("k").acquire().release()
        core = locks._core
        keeper = core.start_keeper()
        assert core.session is not None
        keeper.end(core.session, "a test")
        keeper.beat_soon()
        used = time.process_time()
        threading.Event().wait(0.5)

        assert time.process_time() - used < 0.25


def test_claims_that_queue_do_not_each_wake_the_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.connect("memory://crowd") as locks:
        locks.lock("k").acquire().release()
        keeper = locks._core.start_keeper()
        rung: list[None] = []
        bell, ring = keeper.verbs.bell, ThreadSignal.set

        def count(signal: ThreadSignal) -> None:
            if signal is bell:
                rung.append(None)
            ring(signal)

        monkeypatch.setattr(ThreadSignal, "set", count)
        locks._core.waiting.add("somebody")
        keeper._calm = 0.8
        for _ in range(500):
            keeper.sweep_soon()
            time.sleep(0.0002)  # the keeper has its turn

        assert 1 <= len(rung) < 250
        locks._core.waiting.clear()


class Restless(threading.Thread):
    """Holds a lock, and takes it again where a slow machine lost it, so short is its ttl."""

    def __init__(self, client: holdfast.Client) -> None:
        super().__init__()
        self._client, self._done = client, threading.Event()

    def run(self) -> None:
        while not self._done.is_set():
            with contextlib.suppress(holdfast.LockLost), self._client.lock("other") as grant:
                while grant.valid and not self._done.is_set():
                    self._done.wait(0.05)

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()


def test_a_short_lived_neighbour_does_not_keep_a_waiter_busy(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    with (
        holdfast.connect(url, ttl=0.2) as neighbour,
        holdfast.connect(url) as holder,
        holdfast.connect(url) as locks,
        Restless(neighbour),
    ):
        held = holder.lock("k").acquire()
        waiting = threading.Thread(target=lambda: locks.lock("k").acquire().release())
        waiting.start()
        while not holder.inspect("k").waiters:
            threading.Event().wait(0.01)
        calls = []
        verbs = locks._core.start_keeper().verbs
        sweep = verbs.sweep

        async def counted(until: float) -> object:
            calls.append(until)
            return await sweep(until)

        verbs.sweep = counted  # type: ignore[assignment, method-assign]
        threading.Event().wait(5.0)
        held.release()
        waiting.join()

    assert len(calls) < 12


def test_an_engine_that_ends_every_session_at_once_is_not_asked_for_one_after_the_other() -> None:
    with holdfast.connect("memory://ends-sessions") as locks:
        locks.lock("warm").acquire().release()
        core = locks._core
        opened: list[float] = []
        verbs = core.start_keeper().verbs
        open_session, enter = verbs.open_session, core.verbs.enter

        async def counted(session: rows.Session, until: float) -> Any:
            opened.append(time.monotonic())
            return await open_session(session, until)

        async def over(claim: Claim, until: float) -> Any:
            # Until there were enough: the last one lives.
            return await enter(claim, until) if len(opened) >= 12 else SessionOver()

        verbs.open_session, core.verbs.enter = counted, over  # type: ignore[method-assign]
        locks.lock("k").acquire().release()

        # Pauses that double from 20 ms, each of them half of that on average.
        assert opened[-1] - opened[0] > 0.2


def test_late_news_of_a_former_session_does_not_stop_the_heartbeats_of_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with holdfast.connect("memory://late-news", ttl=3.0) as locks:
        core = locks._core
        grant = locks.lock("k").acquire()
        former = core.session
        assert former is not None
        asked, told = threading.Event(), threading.Event()
        renew = core.verbs.renew

        async def slow(session: str, until: float) -> Any:
            reply = await renew(session, until)
            asked.set()
            assert told.wait(10.0)
            return reply

        monkeypatch.setattr(core.verbs, "renew", slow)
        run(core.verbs.close_session(former.id, core.until()))
        with ThreadPoolExecutor(1) as threads:
            asking = threads.submit(grant.renew)
            assert asked.wait(10.0)
            core.start_keeper().beat_soon()
            assert grant.lost.wait(10.0)
            held = locks.lock("other").acquire()
            opened = held._hold.deadline
            told.set()
            with pytest.raises(holdfast.LockLost):
                asking.result(10.0)

        eventually(lambda: held._hold.deadline > opened, "the new session has no heartbeats")
        held.release()


def test_a_session_that_was_being_opened_when_the_client_was_closed_is_not_left_behind(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    locks = holdfast.connect(url, ttl=600.0)
    busy = sqlite3.connect(tmp_path / "locks.db", isolation_level=None)
    busy.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(2) as threads:
        taking = threads.submit(locks.lock("k").acquire)
        eventually(lambda: list((tmp_path / "locks.db-wake").glob("*")), "it opens no session")
        closing = threads.submit(locks.close)
        eventually(lambda: locks._core.closed, "it is not closed")
        busy.execute("ROLLBACK")
        with pytest.raises(holdfast.HoldfastError):
            taking.result(20.0)
        closing.result(20.0)

    assert busy.execute("SELECT id FROM sessions").fetchall() == []
    busy.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_whoever_wants_a_session_of_a_keeper_that_fails_is_told_why() -> None:
    with holdfast.connect("memory://failing", ttl=600.0) as locks:
        keeper = locks._core.start_keeper()
        thread = keeper.thread
        assert thread is not None
        eventually(thread.is_alive, "the keeper's thread does not start")

        async def fails(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        keeper.new_session = fails  # type: ignore[method-assign, assignment]
        with pytest.raises(holdfast.EngineUnavailable, match="its keeper failed: ZeroDivisionError"):
            locks.lock("k").acquire()
        # It ends by its error, which belongs to this test.
        thread.join(20.0)
        with locks.lock("k"):
            assert locks._core.keeper is not keeper


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_keeper_that_has_failed_lets_nobody_wait() -> None:
    with holdfast.connect("memory://failed", ttl=600.0) as locks:
        keeper = locks._core.start_keeper()
        keeper.fail(ZeroDivisionError("a bug"))
        late = locks._core.io.signal()
        keeper.want_session(late)

        assert late.is_set()
