"""Changing a row without a lock: by a version column, with bounded retries.

A row carries a version. A change says which version it was made for; if somebody else was faster,
nothing is written and the change is made again for the row as it is now. For rows that are seldom
changed at the same moment this beats every lock; for one that is, take a lock.

The connection is the caller's: psycopg, blocking or asyncio (`update_async`, `write_async`), or any DB-API driver.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from holdfast.core.backoff import full_jitter
from holdfast.errors import Conflict, HoldfastError, InvalidRequest
from holdfast.locks.statement import execute, identifier, is_mysql, settle
from holdfast.runtime.blocking import run

__all__ = ["Overtaken", "update", "update_async", "write", "write_async"]

Row = dict[str, Any]
Change = Callable[[Row], Mapping[str, Any]]
"""Gets the row as it is, gives the columns to be written. It may be called several times."""

RETRIES = 20
FIRST_PAUSE, LAST_PAUSE = 0.002, 0.25
_OVERTAKEN_STATES = frozenset({"40001", "40P01"})
"""PostgreSQL: a serialization failure and a deadlock."""
_OVERTAKEN_NUMBERS = frozenset({1020, 1213})
"""MariaDB and MySQL: the row has changed since the transaction first read, and a deadlock.
Not 1205: a row that stays locked for long has not changed, and each further try would wait as long again."""
_SQLITE_BUSY_SNAPSHOT = 517
_IDLE = 0
"""What psycopg and psycopg2 call a connection that is in no transaction."""
_SERVER_STATUS_IN_TRANSACTION = 1
_UNKNOWN_VARIABLE = 1193


class Overtaken(Conflict):
    """Another transaction came first, and the database gave this one up with all of its writes: run it again."""

    def __init__(self, name: str, expected: int | None = None) -> None:
        self.name, self.expected, self.current, self.what = name, expected, None, "version"
        HoldfastError.__init__(
            self,
            f"{name!r}: another transaction came first, and the database gave this one up with all of its writes: "
            "roll back, and run the whole transaction again",
        )


def update(
    connection: Any, table: str, key: Any, change: Change, *,
    column: str = "id", version: str = "version", retries: int = RETRIES,
) -> Row:  # fmt: skip
    """Read the row, change it, and write it if nobody else has; commit. Again if somebody has, up to `retries` times.

    Returns the row as it was written. LookupError if there is no such row, Conflict after the last retry.
    Each try is a transaction of its own, so the connection must not be inside one.
    """
    return run(_update(connection, table, key, change, column, version, retries, _sleep))


async def update_async(
    connection: Any, table: str, key: Any, change: Change, *,
    column: str = "id", version: str = "version", retries: int = RETRIES,
) -> Row:  # fmt: skip
    """`update` on an asynchronous connection."""
    return await _update(connection, table, key, change, column, version, retries, asyncio.sleep)


def write(
    connection: Any, table: str, key: Any, values: Mapping[str, Any], expected: int, *,
    column: str = "id", version: str = "version",
) -> int:  # fmt: skip
    """Write in the caller's transaction if the row is still at `expected`; the new version. Conflict otherwise.

    The Conflict is an `Overtaken` if the database gave the whole transaction up.
    """
    return run(_write(connection, table, key, values, expected, column, version))


async def write_async(
    connection: Any, table: str, key: Any, values: Mapping[str, Any], expected: int, *,
    column: str = "id", version: str = "version",
) -> int:  # fmt: skip
    """`write` on an asynchronous connection."""
    return await _write(connection, table, key, values, expected, column, version)


async def _update(
    connection: Any, table: str, key: Any, change: Change, column: str, version: str, retries: int,
    pause: Callable[[float], Awaitable[None]],
) -> Row:  # fmt: skip
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= 10_000:
        raise InvalidRequest("retries", retries, "0 to 10,000")
    await _check_idle(connection)
    pauses = full_jitter(FIRST_PAUSE, LAST_PAUSE, random.uniform)
    for tried in range(retries + 1):
        try:
            row = await _read(connection, table, key, column)
            values = dict(change(dict(row)))
            row |= values
            row[version] = await _write(connection, table, key, values, row[version], column, version)
            await settle(connection.commit())
            return row
        except BaseException as error:
            # An interrupt or a cancellation too: the row must not stay locked by a transaction that nobody ends.
            await settle(connection.rollback())
            overtaken = _is_overtaken(error)
            if not overtaken and not isinstance(error, Conflict):
                raise
            if tried == retries:
                if overtaken:
                    raise Overtaken(f"{table}:{key}") from error
                raise
        await pause(next(pauses))
    raise AssertionError("unreachable")


async def _read(connection: Any, table: str, key: Any, column: str) -> Row:
    sql = f"SELECT * FROM {identifier('table', table)} WHERE {identifier('column', column)} = %s"
    found = (await execute(connection, sql, (key,))).rows
    if len(found) != 1:
        raise LookupError(f"{table} has {len(found)} rows with {column} = {key!r}, not one")
    return found[0]


async def _write(
    connection: Any, table: str, key: Any, values: Mapping[str, Any], expected: int, column: str, version: str
) -> int:
    if version in values:
        raise InvalidRequest("values", version, "the version is counted here, not by the caller")
    place, by, counted = identifier("table", table), identifier("column", column), identifier("version", version)
    parts = [f"{identifier('column', name)} = %s" for name in values]
    settings = ", ".join([*parts, f"{counted} = {counted} + 1"])
    sql = f"UPDATE {place} SET {settings} WHERE {by} = %s AND {counted} = %s"
    try:
        done = await execute(connection, sql, (*values.values(), key, expected))
    except Exception as error:
        if _is_overtaken(error):
            raise Overtaken(f"{table}:{key}", expected) from error
        raise
    if done.changed == 1:
        return expected + 1
    found = (await execute(connection, f"SELECT {counted} AS v FROM {place} WHERE {by} = %s", (key,))).rows
    raise Conflict(f"{table}:{key}", expected, found[0]["v"] if found else 0)


def _is_overtaken(error: BaseException) -> bool:
    """Whether a driver says that the database gave the transaction up because another one came first."""
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)  # psycopg's, or psycopg2's
    if state in _OVERTAKEN_STATES or getattr(error, "sqlite_errorcode", None) == _SQLITE_BUSY_SNAPSHOT:
        return True
    # MariaDB's own driver has the number in `errno`, the others in front of the text.
    number = getattr(error, "errno", None) or (error.args[0] if error.args else None)
    return is_mysql(error) and number in _OVERTAKEN_NUMBERS


async def _check_idle(connection: Any) -> None:
    if await _in_transaction(connection):
        raise InvalidRequest("connection", connection, "each try is a transaction of its own: end yours first")


async def _in_transaction(connection: Any) -> bool:
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    if status is not None:
        return bool(status != _IDLE)
    if not is_mysql(connection):
        return bool(getattr(connection, "in_transaction", False))
    if getattr(connection, "server_status", 0) & _SERVER_STATUS_IN_TRANSACTION:
        return True
    try:
        # The status that comes with an answer does not count a transaction that has only read so far.
        (found,) = (await execute(connection, "SELECT @@in_transaction AS inside")).rows
    except Exception as error:
        if error.args[:1] == (_UNKNOWN_VARIABLE,):
            return False  # MySQL, which has no such variable
        raise
    return bool(found["inside"])


async def _sleep(seconds: float) -> None:
    threading.Event().wait(seconds)
