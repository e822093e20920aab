"""The connections that a caller may bring: recognised by their type, each spoken to in its own way.

No driver is imported: whoever brings a connection has done that.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from holdfast.errors import InvalidRequest
from holdfast.fence.settling import settled
from holdfast.fence.sql_statements import Dialect

_PARAMETER = re.compile(r"(?<!:):([a-z]+)")
_MISSING_TABLE_STATE = "42P01"
_MISSING_TABLE_NUMBER = 1146
_CHANGED_SINCE_SNAPSHOT = 1020
_SERVER_STATUS_IN_TRANSACTION = 1
_ACTIVE, _IN_TRANSACTION, _IN_FAILED_TRANSACTION = 1, 2, 3
"""What psycopg and psycopg2 call a connection that is at work, one in a transaction, and one in which that failed."""


@dataclass(frozen=True)
class Answer:
    """What a statement gave: its first row, and its insert id."""

    row: Any
    insert_id: int


class Database(Protocol):
    """One connection of a caller."""

    dialect: Dialect
    asynchronous: bool

    async def autocommits(self) -> bool:
        """Whether each statement would be a transaction of its own."""

    async def in_transaction(self) -> bool:
        """Whether a transaction is open that can still be spoken to. PostgreSQL only."""

    async def execute(self, statement: str, parameters: dict[str, Any]) -> Answer: ...

    async def register(self, function: str, gives: Callable[[], Any]) -> None:
        """Make an SQL function of this connection. SQLite only, which refuses to replace one under an open cursor."""


class _DbApi:
    """A connection, or the connection of a cursor, of a driver that we know."""

    def __init__(self, target: Any, driver: str, dialect: Dialect) -> None:
        self.dialect, self._driver = dialect, driver
        self._connection = getattr(target, "connection", target) if hasattr(target, "fetchone") else target
        self.asynchronous = hasattr(self._connection, "__aenter__")

    async def autocommits(self) -> bool:
        await self._synchronize()
        return bool(_autocommits(self._connection))

    async def _synchronize(self) -> None:
        """In a pipeline of psycopg, wait until it is known whether a transaction has begun."""
        if self._driver != "psycopg" or not self._connection.autocommit:
            return
        if self._connection.info.transaction_status == _ACTIVE:
            # A pipeline inside of a pipeline waits for all that was sent, at its beginning.
            if self.asynchronous:
                async with self._connection.pipeline():
                    pass
            else:
                with self._connection.pipeline():
                    pass

    async def in_transaction(self) -> bool:
        return bool(_asked(self._connection).transaction_status == _IN_TRANSACTION)

    async def execute(self, statement: str, parameters: dict[str, Any]) -> Answer:
        text, gives_rows = _prepared(statement, self._driver)
        cursor = self._cursor()
        if self.asynchronous:
            cursor = await settled(cursor)
            await cursor.execute(text, parameters)
            row = await cursor.fetchone() if gives_rows else None
            await cursor.close()
        else:
            cursor.execute(text, parameters)
            row = cursor.fetchone() if gives_rows else None
            cursor.close()
        return Answer(row, cursor.lastrowid or 0 if self.dialect == "mysql" else 0)

    async def register(self, function: str, gives: Callable[[], Any]) -> None:
        await settled(self._connection.create_function(function, 0, gives))

    def _cursor(self) -> Any:
        """A cursor of our own that gives plain rows, whatever the caller's connection is set to."""
        if self._driver == "psycopg":
            return self._connection.cursor(row_factory=sys.modules["psycopg.rows"].tuple_row)
        if self._driver == "pymysql":
            return self._connection.cursor(sys.modules["pymysql.cursors"].Cursor)
        if self._driver == "sqlite3":
            cursor = self._connection.cursor()
            cursor.row_factory = None
            return cursor
        return self._connection.cursor()


class _SqlAlchemy:
    """A Connection or Session of SQLAlchemy, or their asyncio twins."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self.asynchronous = hasattr(target, "__aenter__")
        bind = target.get_bind() if hasattr(target, "get_bind") else target
        name = bind.dialect.name
        if name not in ("postgresql", "sqlite", "mysql", "mariadb"):
            raise InvalidRequest("connection", name, "there is a fence for PostgreSQL, SQLite, MariaDB and MySQL")
        self.dialect: Dialect = "mysql" if name == "mariadb" else name

    async def _connection(self) -> Any:
        if hasattr(self._target, "get_bind"):
            return await settled(self._target.connection())
        return self._target

    async def autocommits(self) -> bool:
        connection = await self._connection()
        options = (connection.sync_connection if self.asynchronous else connection).get_execution_options()
        if options.get("isolation_level") == "AUTOCOMMIT":
            return True
        pooled = await self._pooled()
        told = _autocommits(pooled.driver_connection)
        # asyncpg knows nothing of it: there SQLAlchemy's own layer over it decides.
        return bool(getattr(pooled.dbapi_connection, "autocommit", False)) if told is None else told

    async def in_transaction(self) -> bool:
        return bool(self._target.in_transaction())

    async def register(self, function: str, gives: Callable[[], Any]) -> None:
        raw = (await self._pooled()).driver_connection
        await settled(raw.create_function(function, 0, gives))

    async def _pooled(self) -> Any:
        """What SQLAlchemy's pool has given: the driver's own connection, and its own layer over that."""
        connection = await self._connection()
        return await connection.get_raw_connection() if self.asynchronous else connection.connection

    async def execute(self, statement: str, parameters: dict[str, Any]) -> Answer:
        from sqlalchemy import text

        result = await settled((await self._connection()).execute(text(statement), parameters))
        row = result.first() if result.returns_rows else None
        return Answer(None if row is None else tuple(row), result.lastrowid or 0 if self.dialect == "mysql" else 0)


_DRIVERS: dict[str, tuple[str, Dialect]] = {
    "sqlite3": ("sqlite3", "sqlite"),
    "aiosqlite": ("aiosqlite", "sqlite"),
    "psycopg": ("psycopg", "postgresql"),
    "psycopg2": ("psycopg2", "postgresql"),
    "pymysql": ("pymysql", "mysql"),
    "MySQLdb": ("MySQLdb", "mysql"),
}


_families: dict[type, str | None] = {}
"""What was found out about a type; there are few, and they live as long as the process."""


def database_of(target: Any) -> Database:
    """The caller's connection, cursor or session as something that can run a statement."""
    kind = type(target)
    if kind not in _families:
        _families[kind] = _family(kind)
    family = _families[kind]
    if family == "sqlalchemy":
        raw = getattr(target, "driver_connection", None)  # what `engine.raw_connection()` gives has one
        return _SqlAlchemy(target) if raw is None else database_of(raw)
    if family is None:
        raise InvalidRequest(
            "connection",
            target,
            "give a connection or cursor of sqlite3, psycopg, PyMySQL or mysqlclient, "
            "or a connection or session of SQLAlchemy",
        )
    return _DbApi(target, *_DRIVERS[family])


def _family(kind: type) -> str | None:
    """The package that a type, or one that it inherits from, comes from."""
    for ancestor in kind.__mro__:
        package = ancestor.__module__.partition(".")[0]
        if package in _DRIVERS or package == "sqlalchemy":
            return package
    return None


@lru_cache(maxsize=256)
def _prepared(statement: str, driver: str) -> tuple[str, bool]:
    """The statement with its parameters as the driver writes them, and whether it gives rows."""
    text = statement if driver in ("sqlite3", "aiosqlite") else _PARAMETER.sub(r"%(\1)s", statement)
    return text, statement.startswith(("SELECT", "WITH")) or "RETURNING" in statement


def _autocommits(connection: Any) -> bool | None:
    """Whether the next statement would be committed by itself; None if this driver cannot say."""
    if hasattr(connection, "isolation_level") and hasattr(connection, "in_transaction"):  # sqlite3, aiosqlite
        automatic = connection.isolation_level is None or getattr(connection, "autocommit", -1) is True
        return automatic and not connection.in_transaction
    if hasattr(connection, "get_autocommit"):  # PyMySQL, mysqlclient
        status = getattr(connection, "server_status", 0)
        return bool(connection.get_autocommit()) and not status & _SERVER_STATUS_IN_TRANSACTION
    if not hasattr(connection, "autocommit"):
        return None
    inside = getattr(_asked(connection), "transaction_status", 0) in (_IN_TRANSACTION, _IN_FAILED_TRANSACTION)
    return bool(connection.autocommit) and not inside


def _asked(connection: Any) -> Any:
    """What knows the state of a connection to PostgreSQL; None if the driver has no such thing."""
    # psycopg's `info` is made anew at each look; what it asks is at hand.
    return getattr(connection, "pgconn", None) or getattr(connection, "info", None)


def is_missing_table(error: BaseException) -> bool:
    """Whether a driver's error, or SQLAlchemy's around it, says that a table is not there."""
    cause = getattr(error, "orig", None) or error
    if (
        getattr(cause, "sqlstate", None) == _MISSING_TABLE_STATE
        or getattr(cause, "pgcode", None) == _MISSING_TABLE_STATE
    ):
        return True
    first = cause.args[0] if cause.args else None
    return first == _MISSING_TABLE_NUMBER or (isinstance(first, str) and "no such table" in first)


def is_old_snapshot(error: BaseException) -> bool:
    """Whether MariaDB says that a row has changed since the transaction first read. It has rolled that back."""
    cause = getattr(error, "orig", None) or error
    return bool(cause.args) and cause.args[0] == _CHANGED_SINCE_SNAPSHOT
