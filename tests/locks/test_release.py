"""Giving back: what could not be confirmed is withdrawn by the keeper."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import holdfast
from holdfast.locks.hold import Entry, Hold
from tests.faults.children import eventually


def test_the_last_of_two_entries_that_are_released_at_once_is_withdrawn_if_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holdfast.connect(f"sqlite:///{tmp_path}/locks.db", ttl=30.0) as locks:
        lock = locks.lock("k", reentrant=True)
        first, second = lock.acquire(), lock.acquire()
        let_go = Hold.let_go

        def overtaken(hold: Hold, grant: Entry) -> bool:
            monkeypatch.setattr(Hold, "let_go", let_go)
            first.release()  # as another thread may, at this moment
            return let_go(hold, grant)

        monkeypatch.setattr(Hold, "let_go", overtaken)
        busy = sqlite3.connect(tmp_path / "locks.db", isolation_level=None)
        busy.execute("BEGIN IMMEDIATE")
        with pytest.raises(holdfast.EngineUnavailable):
            second.release()
        busy.execute("ROLLBACK")
        busy.close()

        eventually(lambda: locks.list() == [], "it stays held")
