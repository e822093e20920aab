"""Long queues in one file, and many tasks that want it at once."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import aio
from holdfast.core import urls
from holdfast.core.table.changes import Change, PutRow
from holdfast.core.table.commands import CellSet, Command, Enter, Leave, Look, Open
from holdfast.core.table.rows import Session
from holdfast.engines.sqlite.engine import SqliteEngine, SqlitePort
from holdfast.errors import EngineUnavailable
from holdfast.model import Claim, Mode, Place
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


def claim(number: int, name: str = "k") -> Claim:
    return Claim(f"s-{number}", "s", f"s/{number}", "ns.lock", name)


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

    assert enters[1] < 1.5 * enters[0], enters
    assert leaves[1] < 1.5 * leaves[0], leaves


def place(port: SqlitePort, number: int) -> int:
    """The place in which a new claim waits."""
    reply = port.call(Enter(claim(number)), clock.now() + WITHIN)
    assert isinstance(reply, Place), reply
    return reply.position


def fails(port: SqlitePort, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is rolled back when its changes have been made."""
    connected = port.pool.items[0].value
    assert connected is not None
    put = connected.rows.put

    def broken(change: Change) -> None:
        put(change)
        if isinstance(change, PutRow):
            raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(connected.rows, "put", broken)
        with pytest.raises(EngineUnavailable):
            port.call(Enter(claim(90)), clock.now() + WITHIN)
    # The next claim does not get the number of the one that failed.
    port.call(CellSet("ns.cell", "c", b"1"), clock.now() + WITHIN)


def tell(port: SqlitePort, *commands: Command) -> None:
    for command in commands:
        port.call(command, clock.now() + WITHIN)


MEANWHILE: dict[str, tuple[int, Callable[[SqlitePort, SqlitePort, pytest.MonkeyPatch], object]]] = {
    "nothing": (0, lambda _port, _other, _: None),
    "a waiter leaves": (-1, lambda port, _other, _: tell(port, Leave(claim(2)))),
    "a waiter leaves by another connection": (-1, lambda _, other, __: tell(other, Leave(claim(2)))),
    "a waiter comes by another connection": (1, lambda _, other, __: place(other, 50)),
    "a waiter looks": (0, lambda port, _other, _: tell(port, Look(claim(2)))),
    "a waiter looks, and another one leaves": (-1, lambda port, _, __: tell(port, Leave(claim(1)), Look(claim(3)))),
    "the lock is given back": (-1, lambda port, _other, _: tell(port, Leave(claim(0)))),
    "a step fails": (0, lambda port, _other, monkeypatch: fails(port, monkeypatch)),
    "another queue is entered": (0, lambda port, _, __: tell(port, *(Enter(claim(60 + at, "n")) for at in range(3)))),
}


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_a_place_is_the_right_one_whatever_happened_since_the_queue_was_counted(
    port: SqlitePort, meanwhile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port.call(Enter(claim(0)), clock.now() + WITHIN)
    assert [place(port, number) for number in range(1, 5)] == [1, 2, 3, 4]
    more, happens = MEANWHILE[meanwhile]

    happens(port, port.engine.port(), monkeypatch)

    assert [place(port, number) for number in range(5, 8)] == [5 + more, 6 + more, 7 + more]


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


def search_among_readers(port: SqlitePort, readers: int) -> int:
    """What it costs to queue behind so many readers, which all wait to read what a writer has."""
    number = itertools.count()

    def enter(owner: str, name: str, mode: Mode) -> Enter:
        return Enter(Claim(f"s-{readers}-{next(number)}", "s", f"s/{owner}", "ns.lock", f"{name}{readers}", mode))

    def run(command: Enter) -> Any:
        return port.call(command, clock.now() + WITHIN)

    run(enter("writer", "busy", "exclusive"))
    run(enter("newcomer", "mine", "exclusive"))
    for reader in range(readers):
        run(enter(f"{reader}", "wanted", "shared"))
    for reader in range(readers):
        run(enter(f"{reader}", "busy", "shared"))
    return work(port, enter("newcomer", "wanted", "exclusive"))


def test_a_search_for_a_deadlock_reads_a_queue_of_readers_once(port: SqlitePort) -> None:
    few, many = (search_among_readers(port, readers) for readers in (20, 80))

    assert many < 8 * few


@pytest.mark.parametrize(("name", "subtree"), [("k", False), ("a/b/k", False), ("a/b", True)])
def test_a_claim_that_has_to_wait_reads_no_locks_that_have_nothing_to_do_with_it(
    port: SqlitePort, name: str, subtree: bool
) -> None:
    number = itertools.count()

    def enter(owner: str, name: str, subtree: bool = False) -> Enter:
        return Enter(Claim(f"s-{next(number)}", "s", f"s/{owner}", "ns.lock", name, subtree=subtree))

    def run(command: Enter) -> None:
        port.call(command, clock.now() + WITHIN)

    run(enter("holder", name, subtree))
    run(enter("first", "another"))
    run(enter("second", "one more"))
    few = work(port, enter("first", name, subtree))
    for other in range(MANY):
        run(enter("others", f"other {other}"))

    assert work(port, enter("second", name, subtree)) < 1.5 * few + 200
