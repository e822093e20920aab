"""Ctrl-C that comes as a commit returns: what was committed has happened, for everybody."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.faults.children import eventually


class InterruptedOnce:
    """A connection whose next commit is done when Ctrl-C comes: the moment at which it most often does."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection, self._armed = connection, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str) -> sqlite3.Cursor:
        cursor = self._connection.execute(sql)
        if sql == "COMMIT" and self._armed:
            self._armed = False
            raise KeyboardInterrupt
        return cursor


def test_the_next_in_line_is_woken_although_the_release_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.locks.acquire.FIRST_POLL", 600.0)
    url = f"sqlite:///{tmp_path}/locks.db"
    with holdfast.connect(url) as holder, holdfast.connect(url) as other, ThreadPoolExecutor(1) as threads:
        grant = holder.lock("k").acquire()
        waiting = threads.submit(other.lock("k", wait=20.0).acquire)
        eventually(lambda: holder.inspect("k").waiters, "it did not get in line")
        port: Any = holder._core.verbs.io.port  # type: ignore[attr-defined]
        port.connection = InterruptedOnce(port.connection)
        with pytest.raises(KeyboardInterrupt):
            grant.release()

        waiting.result().release()
