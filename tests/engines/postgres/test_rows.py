"""The two ways that need no lock service: row locks and version columns."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib import import_module
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import aio, optimistic
from holdfast.verify.servers.postgres import PostgresServer

Session = psycopg.Connection[Any]


@pytest.fixture
def locks() -> Iterator[holdfast.Client]:
    with holdfast.connect("memory://rows") as client:
        yield client


@pytest.fixture
def open_session(server: PostgresServer, database: Session, schema: str) -> Iterator[Callable[[], Session]]:
    database.execute(f"CREATE TABLE {schema} (id int PRIMARY KEY, balance int, version int NOT NULL DEFAULT 1)")
    database.execute(f"INSERT INTO {schema} VALUES (7, 100), (8, 100)")
    opened: list[Session] = []

    def make() -> Session:
        opened.append(psycopg.connect(server.url))
        return opened[-1]

    yield make
    for session in opened:
        session.close()
    database.execute(f"DROP TABLE {schema}")


def lock_limit(session: Session) -> Any:
    row = session.execute("SHOW lock_timeout").fetchone()
    assert row is not None
    return row[0]


def test_a_row_is_locked_until_the_transaction_ends(
    locks: holdfast.Client, open_session: Callable[[], Session], schema: str
) -> None:
    mine, other = open_session(), open_session()
    assert locks.row_lock(mine, schema, 7) == {"id": 7, "balance": 100, "version": 1}
    with pytest.raises(holdfast.NotAcquired):
        locks.row_lock(other, schema, 7, nowait=True)
    mine.commit()

    assert locks.row_lock(other, schema, 7, nowait=True) is not None


def test_skip_locked_gives_none_and_so_does_a_row_that_is_not_there(
    locks: holdfast.Client, open_session: Callable[[], Session], schema: str
) -> None:
    mine, other = open_session(), open_session()
    locks.row_lock(mine, schema, 7)

    assert locks.row_lock(other, schema, 7, skip_locked=True) is None
    assert locks.row_lock(other, schema, 99) is None


def test_readers_share_a_row(locks: holdfast.Client, open_session: Callable[[], Session], schema: str) -> None:
    mine, other = open_session(), open_session()
    assert locks.row_lock(mine, schema, 7, shared=True) is not None
    assert locks.row_lock(other, schema, 7, shared=True, nowait=True) is not None


@pytest.mark.parametrize("taken", [True, False])
def test_a_bounded_wait_leaves_the_transaction_usable_and_the_limit_as_it_was(
    locks: holdfast.Client, open_session: Callable[[], Session], schema: str, taken: bool
) -> None:
    mine, other = open_session(), open_session()
    other.execute("SET lock_timeout = '1234ms'")
    other.commit()
    other.execute(f"UPDATE {schema} SET balance = 50 WHERE id = 8")
    if taken:
        locks.row_lock(mine, schema, 7)
        with pytest.raises(holdfast.NotAcquired) as missed:
            locks.row_lock(other, schema, 7, wait=0.1)
        assert 0.1 <= missed.value.waited < 1.2
    else:
        assert locks.row_lock(other, schema, 7, wait=0.1) is not None

    assert lock_limit(other) == "1234ms"
    other.commit()
    assert mine.execute(f"SELECT balance FROM {schema} WHERE id = 8").fetchone() == (50,)


def test_the_databases_deadlock_is_a_deadlock(
    locks: holdfast.Client, open_session: Callable[[], Session], schema: str
) -> None:
    start = threading.Barrier(2)

    def work(first: int, second: int) -> Any:
        session = open_session()
        locks.row_lock(session, schema, first)
        start.wait()
        try:
            locks.row_lock(session, schema, second)
        except holdfast.Deadlock as error:
            return error
        finally:
            session.rollback()
        return None

    with ThreadPoolExecutor(2) as threads:
        found = [job.result(30) for job in [threads.submit(work, 7, 8), threads.submit(work, 8, 7)]]
    assert sum(isinstance(error, holdfast.Deadlock) for error in found) == 1


def test_autocommit_is_refused(locks: holdfast.Client, database: Session, schema: str) -> None:
    with pytest.raises(holdfast.InvalidRequest, match="autocommit"):
        locks.row_lock(database, "pg_class", 1, column="oid")


def test_a_table_name_cannot_break_out(locks: holdfast.Client, open_session: Callable[[], Session]) -> None:
    with pytest.raises(holdfast.InvalidRequest):
        locks.row_lock(open_session(), 'x"; DROP TABLE y; --', 1)


async def test_tasks_have_the_same(server: PostgresServer, open_session: Callable[[], Session], schema: str) -> None:
    mine = open_session()
    mine.execute(f"SELECT FROM {schema} WHERE id = 7 FOR UPDATE")
    async with aio.connect("memory://rows") as locks, await psycopg.AsyncConnection.connect(server.url) as session:
        with pytest.raises(holdfast.NotAcquired):
            await locks.row_lock(session, schema, 7, wait=0.05)
        mine.rollback()
        assert await locks.row_lock(session, schema, 7, wait=5.0) is not None


def test_updates_of_many_are_all_made(open_session: Callable[[], Session], schema: str) -> None:
    def work(_: int) -> None:
        session = open_session()
        for _ in range(5):
            optimistic.update(session, schema, 7, lambda row: {"balance": row["balance"] + 1}, retries=500)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(6)))

    row = open_session().execute(f"SELECT balance, version FROM {schema} WHERE id = 7").fetchone()
    assert row == (130, 31)


def test_retries_are_bounded(open_session: Callable[[], Session], schema: str) -> None:
    session, rival = open_session(), open_session()
    calls = 0

    def change(row: dict[str, Any]) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        rival.execute(f"UPDATE {schema} SET version = version + 1 WHERE id = 7")
        rival.commit()
        return {"balance": 0}

    with pytest.raises(holdfast.Conflict):
        optimistic.update(session, schema, 7, change, retries=3)
    assert calls == 4
    assert rival.execute(f"SELECT balance FROM {schema} WHERE id = 7").fetchone() == (100,)


def test_a_write_for_another_version_changes_nothing(open_session: Callable[[], Session], schema: str) -> None:
    session = open_session()
    assert optimistic.write(session, schema, 7, {"balance": 1}, expected=1) == 2
    with pytest.raises(holdfast.Conflict) as conflict:
        optimistic.write(session, schema, 7, {"balance": 2}, expected=1)
    assert conflict.value.current == 2


def test_an_update_inside_a_transaction_is_refused(open_session: Callable[[], Session], schema: str) -> None:
    session = open_session()
    session.execute("SELECT 1")
    with pytest.raises(holdfast.InvalidRequest, match="end yours first"):
        optimistic.update(session, schema, 7, lambda row: {})


def test_a_row_that_is_not_there_is_said(open_session: Callable[[], Session], schema: str) -> None:
    with pytest.raises(LookupError):
        optimistic.update(open_session(), schema, 99, lambda row: {})


async def test_updates_of_tasks(server: PostgresServer, open_session: Callable[[], Session], schema: str) -> None:
    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(server.url) as session:
            await optimistic.update_async(session, schema, 7, lambda row: {"balance": row["balance"] + 1}, retries=500)

    await asyncio.gather(*(work() for _ in range(6)))
    assert open_session().execute(f"SELECT balance FROM {schema} WHERE id = 7").fetchone() == (106,)


def test_it_works_on_sqlite_too() -> None:
    session = sqlite3.connect(":memory:")
    session.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER, version INTEGER)")
    session.execute("INSERT INTO t VALUES (1, 10, 1)")
    session.commit()

    assert optimistic.update(session, "t", 1, lambda row: {"n": row["n"] + 1}) == {"id": 1, "n": 11, "version": 2}
    session.close()


def test_psycopg2_is_as_good_for_a_row_lock(
    locks: holdfast.Client, open_session: Callable[[], Session], server: PostgresServer, schema: str
) -> None:
    psycopg2: Any = import_module("psycopg2")
    mine = open_session()
    with closing(psycopg2.connect(server.url)) as other:
        assert locks.row_lock(mine, schema, 7) is not None
        with pytest.raises(holdfast.NotAcquired):
            locks.row_lock(other, schema, 7, nowait=True)
        with pytest.raises(holdfast.NotAcquired):
            locks.row_lock(other, schema, 7, wait=0.05)
        assert locks.row_lock(other, schema, 8) == {"id": 8, "balance": 100, "version": 1}
        other.rollback()
        other.autocommit = True
        with pytest.raises(holdfast.InvalidRequest, match="begin one first"):
            locks.row_lock(other, schema, 8)
