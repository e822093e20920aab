"""A row that is changed by its version, on every database and through the drivers that people have."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from importlib import import_module
from typing import Any

import psycopg
import pytest

from holdfast import optimistic
from holdfast.errors import Conflict, InvalidRequest
from holdfast.optimistic import Overtaken
from holdfast.verify.servers.process import wait_until
from tests.fence.databases import MariaDb, Postgres, SqlDatabase, Sqlite


@pytest.fixture
def table(database: SqlDatabase, name: str) -> Iterator[str]:
    """A table with one row, at version 1."""
    made = "v" + name.replace(":", "_")
    with database.transaction() as connection:
        database.execute(connection, f"CREATE TABLE {made} (id INT PRIMARY KEY, amount INT, version INT)")
        database.execute(connection, f"INSERT INTO {made} VALUES (7, 100, 1)")
    yield made
    with database.transaction() as connection:
        database.execute(connection, f"DROP TABLE {made}")


def row(database: SqlDatabase, table: str) -> tuple[Any, ...]:
    with database.transaction() as connection:
        return database.execute(connection, f"SELECT id, amount, version FROM {table}")[0]


def less(row: dict[str, Any]) -> dict[str, Any]:
    return {"amount": row["amount"] - 10}


def test_a_row_is_changed_on_every_database(database: SqlDatabase, table: str) -> None:
    with closing(database.connect()) as connection:
        assert optimistic.update(connection, table, 7, less) == {"id": 7, "amount": 90, "version": 2}
        with pytest.raises(Conflict):
            optimistic.write(connection, table, 7, {"amount": 0}, expected=1)

    assert row(database, table) == (7, 90, 2)


def test_an_interrupted_change_leaves_no_transaction_behind(database: SqlDatabase, table: str) -> None:
    def interrupted(_: dict[str, Any]) -> dict[str, Any]:
        database.execute(connection, f"UPDATE {table} SET amount = 0")
        raise KeyboardInterrupt

    with closing(database.connect()) as connection:
        with pytest.raises(KeyboardInterrupt):
            optimistic.update(connection, table, 7, interrupted)

        assert optimistic.update(connection, table, 7, less)["amount"] == 90


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
async def test_a_cancelled_change_leaves_no_transaction_behind(database: Postgres, table: str) -> None:
    with database.transaction() as rival:
        database.execute(rival, f"UPDATE {table} SET amount = amount")
        async with await psycopg.AsyncConnection.connect(database.url) as connection:
            task = asyncio.create_task(optimistic.update_async(connection, table, 7, less))
            waits = partial(database.execute, rival, "SELECT 1 FROM pg_locks WHERE NOT granted")
            await asyncio.to_thread(wait_until, lambda: bool(waits()), 30, "the wait for the row")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

            assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_psycopg2_is_as_good(database: Postgres, table: str) -> None:
    with closing(import_module("psycopg2").connect(database.url)) as connection:
        assert optimistic.update(connection, table, 7, less)["amount"] == 90

        connection.cursor().execute("SELECT 1")
        with pytest.raises(InvalidRequest, match="end yours first"):
            optimistic.update(connection, table, 7, less)


@pytest.mark.parametrize("before", ["INSERT INTO {} VALUES (8, 1, 1)", "SELECT * FROM {} FOR UPDATE", "BEGIN"])
def test_a_transaction_of_the_caller_is_neither_ended_nor_used(database: SqlDatabase, table: str, before: str) -> None:
    if database.dialect == "sqlite":
        before = before.removesuffix(" FOR UPDATE").replace("SELECT * FROM {}", "BEGIN")
    with closing(database.connect()) as connection:
        database.execute(connection, before.format(table))

        with pytest.raises(InvalidRequest, match="end yours first"):
            optimistic.update(connection, table, 7, less)

        connection.commit()
        assert optimistic.update(connection, table, 7, less)["amount"] == 90
    with database.transaction() as connection:
        rows = 2 if before.startswith("INSERT") else 1
        assert database.execute(connection, f"SELECT count(*) FROM {table}") == [(rows,)]


def isolated(database: SqlDatabase, level: str) -> Any:
    """A connection whose transactions see one snapshot, in which a row that has changed since cannot be written."""
    if isinstance(database, Sqlite):
        connection = sqlite3.connect(database.path, timeout=30, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        return connection
    connection = database.connect()
    if isinstance(database, MariaDb):
        database.execute(connection, f"SET SESSION innodb_snapshot_isolation = {level}")
    else:
        database.execute(connection, f"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}")
    connection.commit()
    return connection


LEVELS = [
    ("sqlite", "snapshot"),
    ("postgresql", "READ COMMITTED"),
    ("postgresql", "REPEATABLE READ"),
    ("postgresql", "SERIALIZABLE"),
    ("mariadb", "OFF"),
    ("mariadb", "ON"),
]
at_every_level = pytest.mark.parametrize(("database", "level"), LEVELS, indirect=["database"])


@at_every_level
def test_of_two_writers_the_later_one_tries_again_at_every_isolation(
    database: SqlDatabase, level: str, table: str
) -> None:
    rows: list[dict[str, Any]] = []

    def overtaken_once(row: dict[str, Any]) -> dict[str, Any]:
        rows.append(row)
        if len(rows) == 1:
            with closing(database.connect()) as rival:
                optimistic.update(rival, table, 7, less)
        return less(row)

    with closing(isolated(database, level)) as connection:
        assert optimistic.update(connection, table, 7, overtaken_once) == {"id": 7, "amount": 80, "version": 3}
        rows.clear()
        with pytest.raises(Conflict):
            optimistic.update(connection, table, 7, overtaken_once, retries=0)


@at_every_level
def test_a_write_after_a_rival_came_first_is_a_conflict_at_every_isolation(
    database: SqlDatabase, level: str, table: str
) -> None:
    with closing(isolated(database, level)) as connection:
        database.execute(connection, "BEGIN")
        database.execute(connection, f"SELECT version FROM {table}")
        with closing(database.connect()) as rival:
            optimistic.update(rival, table, 7, less)

        with pytest.raises(Conflict) as refused:
            optimistic.write(connection, table, 7, {"amount": 0}, expected=1)

        given_up = level not in ("READ COMMITTED", "OFF")
        assert isinstance(refused.value, Overtaken) is given_up
        assert (refused.value.expected, refused.value.current) == (1, None if given_up else refused.value.current)
        connection.rollback()
        assert optimistic.write(connection, table, 7, {"amount": 0}, expected=2) == 3
        connection.commit()


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_a_change_that_a_deadlock_ended_is_made_again(database: SqlDatabase, table: str) -> None:
    with database.transaction() as connection:
        database.execute(connection, f"INSERT INTO {table} VALUES (8, 100, 1)")
    both, changes = threading.Barrier(2, timeout=30), []

    def crosswise(first: int, second: int) -> None:
        def change(row: dict[str, Any]) -> dict[str, Any]:
            changes.append(first)
            database.execute(connection, f"UPDATE {table} SET amount = amount WHERE id = {first}")
            if changes.count(first) == 1:
                both.wait()
            return {"amount": row["amount"] + 1}

        with closing(database.connect()) as connection:
            optimistic.update(connection, table, second, change)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(crosswise, 7, 8), pool.submit(crosswise, 8, 7)]:
            done.result(60)
    assert len(changes) > 2
    with database.transaction() as connection:
        assert database.execute(connection, f"SELECT amount FROM {table}") == [(101,), (101,)]
