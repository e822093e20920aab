"""The store beside others on its disk: who fills it, and who reads the file."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from holdfast.server import sqlite_disk, sqlite_store
from tests.server.test_sqlite_store import Served, begun, refusal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks.db"


@pytest.mark.parametrize("times", [1, 2])
async def test_a_disk_without_room_for_the_witness_leaves_it_behind_and_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    served = await begun(path)
    write, left = os.pwrite, times

    def no_room(file: int, data: bytes, at: int) -> int:
        nonlocal left
        left -= 1
        if left >= 0:
            raise OSError(errno.ENOSPC, "no room")
        return write(file, data, at)

    monkeypatch.setattr(os, "pwrite", no_room)
    token = await served.take("a")

    # With the ballast there is room again; or else the witness is of the batch before, which is as good.
    assert left == times - 2
    assert served.store.figures().short_of_room
    assert await served.take("b") == token + 1
    served.close()
    again = Served(path)
    assert {row.claim.name for row in again.table.rows.values()} == {"a", "b"}
    again.close()


async def test_a_store_that_somebody_reads_is_not_started_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (await begun(path, "a")).close()
    monkeypatch.setattr(sqlite_disk, "PATIENCE", 0.1)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM log").fetchone()

    assert "another program reads it" in str(refusal(path))

    reader.close()
    Served(path).close()


async def test_a_write_ahead_log_that_somebody_holds_up_is_told_of_and_copied_later(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "WAL_PAGES", 40)
    served = await begun(path)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM log").fetchone()
    # One commit more than it takes: a checkpoint comes after its commit was told of.
    for number in range(40):
        await served.take(f"n{number}")
    assert served.store._held_up
    assert [record.message for record in caplog.records if "somebody reads" in record.message] == [
        "somebody reads the store: its write-ahead log grows until that ends"
    ]

    reader.close()
    for number in range(40, 80):
        await served.take(f"n{number}")

    assert not served.store._held_up
    served.close()
