"""What PostgreSQL offers by itself: session advisory locks, and a row locked by `SELECT … FOR UPDATE`.

A connection for each caller, because both belong to a session. Neither has a lease or a token.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import psycopg

from holdfast.bench.subject import Where
from holdfast.core import urls
from holdfast.engines.postgres.address import parse_address

Blocking = psycopg.Connection[Any]
Tasks = psycopg.AsyncConnection[Any]


def conninfo(where: Where) -> str:
    """The server of this run, without what only our engine understands."""
    return parse_address(urls.parse(where.url)).conninfos[0]


def key(where: Where, name: str) -> int:
    text = f"{where.namespace}/{name}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)


class Pool:
    """Connections for whoever holds or waits; kept for the next."""

    def __init__(self, where: Where, autocommit: bool) -> None:
        self.where, self.autocommit = where, autocommit
        self._free: list[Blocking] = []
        self._opened: list[Blocking] = []

    def take(self) -> Blocking:
        try:
            return self._free.pop()
        except IndexError:
            connection = psycopg.connect(conninfo(self.where), autocommit=self.autocommit)
            self._opened.append(connection)
            return connection

    def give(self, connection: Blocking) -> None:
        self._free.append(connection)

    def close(self) -> None:
        for connection in self._opened:
            connection.close()


class TaskPool:
    """The same for tasks."""

    def __init__(self, where: Where, autocommit: bool) -> None:
        self.where, self.autocommit = where, autocommit
        self._free: list[Tasks] = []
        self._opened: list[Tasks] = []

    async def take(self) -> Tasks:
        if self._free:
            return self._free.pop()
        connection = await psycopg.AsyncConnection.connect(conninfo(self.where), autocommit=self.autocommit)
        self._opened.append(connection)
        return connection

    def give(self, connection: Tasks) -> None:
        self._free.append(connection)

    async def close(self) -> None:
        for connection in self._opened:
            await connection.close()


class AdvisoryTaker:
    """`pg_advisory_lock` and `pg_advisory_unlock`."""

    def __init__(self, pool: Pool, number: int) -> None:
        self._pool, self._number = pool, number

    def acquire(self) -> None:
        self._connection = self._pool.take()
        self._connection.execute("SELECT pg_advisory_lock(%s)", (self._number,))

    def release(self) -> None:
        self._connection.execute("SELECT pg_advisory_unlock(%s)", (self._number,))
        self._pool.give(self._connection)


class AdvisoryTaskTaker:
    """The same for a task."""

    def __init__(self, pool: TaskPool, number: int) -> None:
        self._pool, self._number = pool, number

    async def acquire(self) -> None:
        self._connection = await self._pool.take()
        await self._connection.execute("SELECT pg_advisory_lock(%s)", (self._number,))

    async def release(self) -> None:
        await self._connection.execute("SELECT pg_advisory_unlock(%s)", (self._number,))
        self._pool.give(self._connection)


class RowTaker:
    """A transaction that locks a row, and its end."""

    def __init__(self, pool: Pool, table: str, name: str) -> None:
        self._pool, self._name = pool, name
        self._sql = f"SELECT name FROM {table} WHERE name = %s FOR UPDATE".encode()

    def acquire(self) -> None:
        self._connection = self._pool.take()
        self._connection.execute(self._sql, (self._name,))

    def release(self) -> None:
        self._connection.commit()
        self._pool.give(self._connection)


class RowTaskTaker:
    """The same for a task."""

    def __init__(self, pool: TaskPool, table: str, name: str) -> None:
        self._pool, self._name = pool, name
        self._sql = f"SELECT name FROM {table} WHERE name = %s FOR UPDATE".encode()

    async def acquire(self) -> None:
        self._connection = await self._pool.take()
        await self._connection.execute(self._sql, (self._name,))

    async def release(self) -> None:
        await self._connection.commit()
        self._pool.give(self._connection)


class AdvisoryConnection:
    """Callers of advisory locks."""

    def __init__(self, where: Where) -> None:
        self.where, self._pool = where, Pool(where, autocommit=True)

    def taker(self, name: str) -> AdvisoryTaker:
        return AdvisoryTaker(self._pool, key(self.where, name))

    def requests(self) -> None:
        return None

    def close(self) -> None:
        self._pool.close()


class RowConnection:
    """Callers of row locks. The rows stay: a lock's row has to be there before it is locked."""

    def __init__(self, where: Where) -> None:
        self._pool, self._table = Pool(where, autocommit=False), make_table(where)

    def taker(self, name: str) -> RowTaker:
        connection = self._pool.take()
        make_row(connection, self._table, name)
        self._pool.give(connection)
        return RowTaker(self._pool, self._table, name)

    def requests(self) -> None:
        return None

    def close(self) -> None:
        self._pool.close()


def make_table(where: Where) -> str:
    """A table of this run's own."""
    table = f"holdfast_{where.namespace.replace('-', '_')}"
    with psycopg.connect(conninfo(where), autocommit=True) as connection:
        connection.execute(b"SELECT pg_advisory_lock(4711)")
        connection.execute(f"CREATE TABLE IF NOT EXISTS {table} (name text PRIMARY KEY)".encode())
    return table


def make_row(connection: Blocking, table: str, name: str) -> None:
    connection.execute(f"INSERT INTO {table} VALUES (%s) ON CONFLICT DO NOTHING".encode(), (name,))
    connection.commit()


class AdvisoryTaskConnection:
    """Tasks with advisory locks."""

    def __init__(self, where: Where) -> None:
        self.where, self._pool = where, TaskPool(where, autocommit=True)

    def taker(self, name: str) -> AdvisoryTaskTaker:
        return AdvisoryTaskTaker(self._pool, key(self.where, name))

    async def close(self) -> None:
        await self._pool.close()


class RowTaskConnection:
    """Tasks with row locks."""

    def __init__(self, where: Where) -> None:
        self.where, self._pool, self._table = where, TaskPool(where, autocommit=False), make_table(where)

    def taker(self, name: str) -> RowTaskTaker:
        with psycopg.connect(conninfo(self.where)) as connection:
            make_row(connection, self._table, name)
        return RowTaskTaker(self._pool, self._table, name)

    async def close(self) -> None:
        await self._pool.close()


class AdvisoryLocks:
    """Raw `pg_advisory_lock`."""

    name = "pg-advisory"
    has_tasks = True
    spans_processes = True
    schemes = ("postgresql",)

    def __init__(self, where: Where) -> None:
        self.where = where

    def connect(self) -> AdvisoryConnection:
        return AdvisoryConnection(self.where)

    async def connect_tasks(self) -> AdvisoryTaskConnection:
        return AdvisoryTaskConnection(self.where)


class RowLocks:
    """Bare `SELECT … FOR UPDATE`."""

    name = "pg-for-update"
    has_tasks = True
    spans_processes = True
    schemes = ("postgresql",)

    def __init__(self, where: Where) -> None:
        self.where = where

    def connect(self) -> RowConnection:
        return RowConnection(self.where)

    async def connect_tasks(self) -> RowTaskConnection:
        return RowTaskConnection(self.where)
