"""Ctrl-C in a step on the file: what was committed has happened; what was not keeps no client from the file."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.faults.children import eventually
from tests.faults.injection import NEVER_RAN, Moments, count_moments


class Interrupted:
    """A connection on which Ctrl-C comes: after some of its statements, or in place of them."""

    def __init__(self, connection: sqlite3.Connection, after: tuple[str, ...], instead: tuple[str, ...]) -> None:
        self._connection, self._after, self._instead = connection, list(after), list(instead)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str) -> sqlite3.Cursor:
        if sql in self._instead:
            self._instead.remove(sql)
            raise KeyboardInterrupt
        cursor = self._connection.execute(sql)
        if sql in self._after:
            self._after.remove(sql)
            raise KeyboardInterrupt
        return cursor


def interrupt(client: holdfast.Client, after: tuple[str, ...] = (), instead: tuple[str, ...] = ()) -> None:
    """Let Ctrl-C come on the connection of a client's callers."""
    port: Any = client._core.verbs.io.port  # type: ignore[attr-defined]
    connected = port.pool.items[0].value
    connected.connection = Interrupted(connected.connection, after, instead)


def test_the_next_in_line_is_woken_although_the_release_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.locks.acquire.FIRST_POLL", 600.0)
    url = f"sqlite:///{tmp_path}/locks.db"
    with holdfast.connect(url) as holder, holdfast.connect(url) as other, ThreadPoolExecutor(1) as threads:
        grant = holder.lock("k").acquire()
        waiting = threads.submit(other.lock("k", wait=20.0).acquire)
        eventually(lambda: holder.inspect("k").waiters, "it did not get in line")
        interrupt(holder, after=("COMMIT",))
        with pytest.raises(KeyboardInterrupt):
            grant.release()

        waiting.result().release()


def test_a_step_whose_undoing_was_interrupted_too_keeps_no_other_client_from_the_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    with holdfast.connect(url, ttl=1.0) as mine, holdfast.connect(url, ttl=1.0) as other:
        kept = mine.lock("kept").acquire()
        other.lock("warm").acquire().release()
        interrupt(mine, after=("BEGIN IMMEDIATE",), instead=("ROLLBACK", "ROLLBACK"))
        with pytest.raises(KeyboardInterrupt):
            mine.lock("k").acquire()
        # No call of the interrupted client undoes it: its keeper does, as it sends its heartbeat.
        other.lock("k").acquire(wait=5.0).release()
        assert kept.valid
        mine.lock("k").acquire(wait=1.0).release()


@pytest.mark.usefixtures("garbage_is_collected")
@pytest.mark.filterwarnings(NEVER_RAN)
def test_an_interrupt_at_any_moment_leaves_the_connection_to_other_threads(tmp_path: Path) -> None:
    with (
        holdfast.connect(f"sqlite:///{tmp_path}/locks.db", ttl=60.0) as locks,
        ThreadPoolExecutor(1) as thread,
    ):

        def work() -> None:
            locks.inspect("k")

        for at in range(count_moments(work)):
            fault = Moments(at, KeyboardInterrupt)
            with suppress(KeyboardInterrupt):
                fault.run(work)
            began = time.monotonic()
            thread.submit(locks.inspect, "k").result()
            assert time.monotonic() - began < 2.0, f"kept from the connection: {fault.where}"
