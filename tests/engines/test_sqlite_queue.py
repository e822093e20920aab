"""Long queues in one file, and many tasks that want it at once."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import aio
from holdfast.core import urls
from holdfast.core.table.commands import Command, Enter, Leave, Open
from holdfast.core.table.rows import Session
from holdfast.engines.sqlite.engine import SqliteEngine, SqlitePort
from holdfast.model import Claim
from holdfast.runtime import clock
from tests.servers.process import wait_until

WITHIN = 60.0
FEW, MANY = 50, 1_000


@pytest.fixture
def port(tmp_path: Path) -> Iterator[SqlitePort]:
    engine = SqliteEngine(urls.parse(f"sqlite:///{tmp_path / 'locks.db'}"), "ns")
    engine.blocking()
    port = engine.port()
    port.call(Open(Session("s", WITHIN, 0.0, "", "", 1)), clock.now() + WITHIN)
    yield port
    engine.close()


def claim(number: int) -> Claim:
    return Claim(f"s-{number}", "s", f"s/{number}", "ns.lock", "k")


def work(port: SqlitePort, command: Command) -> int:
    """How many instructions of its virtual machine SQLite needs for a step."""
    done = 0

    def count() -> None:
        nonlocal done
        done += 1

    connected = port.pool.items[0].value
    assert connected is not None
    connected.connection.set_progress_handler(count, 1)
    try:
        port.call(command, clock.now() + WITHIN)
    finally:
        connected.connection.set_progress_handler(None, 1)
    return done


def test_a_place_in_a_long_queue_costs_little_more_than_in_a_short_one(port: SqlitePort) -> None:
    enters, leaves = [], []
    number = 0
    for length in (FEW, MANY):
        while number < length:
            port.call(Enter(claim(number)), clock.now() + WITHIN)
            number += 1
        enters.append(work(port, Enter(claim(number))))
        leaves.append(work(port, Leave(claim(number))))

    # Its place is counted in an index, which is a handful of instructions for each claim before it.
    assert enters[1] - enters[0] < 6 * (MANY - FEW), enters
    assert leaves[1] < 1.5 * leaves[0], leaves


async def test_only_the_step_that_found_the_file_busy_moves_to_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "locks.db"
    moved = 0
    call = SqlitePort.call

    def counted(port: SqlitePort, request: Command, until: float) -> Any:
        nonlocal moved
        moved += isinstance(request, Enter)
        return call(port, request, until)

    monkeypatch.setattr(SqlitePort, "call", counted)
    async with aio.connect(f"sqlite:///{path}") as locks:
        await (await locks.lock("first").acquire()).release()  # the session is open
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        tasks = [asyncio.create_task(locks.lock(f"n-{number}").acquire()) for number in range(100)]
        await asyncio.to_thread(wait_until, lambda: moved > 0, WITHIN, "a step in the thread")
        for _ in tasks:
            await asyncio.sleep(0)
        other.execute("ROLLBACK")
        other.close()
        await asyncio.gather(*tasks)

    # Another process may have the file again for a moment: that one moves too.
    assert moved < 10
