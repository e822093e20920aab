"""`SELECT … FOR UPDATE` done right: in the caller's transaction, which stays usable whatever happens.

The lock is the transaction's: it ends with it, and needs neither an engine nor a token, because
whoever lost it cannot commit any more.
"""

from __future__ import annotations

import time
from typing import Any, TypedDict, Unpack

from holdfast.errors import Deadlock, InvalidRequest, NotAcquired
from holdfast.locks.spec import check_seconds
from holdfast.locks.statement import execute, identifier
from holdfast.model import Link

LONGEST_ROW_WAIT = 2_147_483.0
"""PostgreSQL counts `lock_timeout` in milliseconds, in 31 bits."""
_IDLE = 0
"""What psycopg and psycopg2 call a connection that is in no transaction."""
_SAVEPOINT = "holdfast_row_lock"
_NOT_AVAILABLE, _DEADLOCK = "55P03", "40P01"


class RowOptions(TypedDict, total=False):
    """How to take a row's lock."""

    column: str
    """The column that `key` is looked up in; `id` unless told."""
    wait: float | None
    """How long to wait for whoever has it; None for ever, or as the connection is set."""
    nowait: bool
    """NotAcquired at once if somebody has it."""
    skip_locked: bool
    """None at once if somebody has it: for work that anybody may take."""
    shared: bool
    """FOR SHARE: others may read it so too, nobody may change it."""


async def lock_row(connection: Any, table: str, key: Any, **options: Unpack[RowOptions]) -> dict[str, Any] | None:
    """The row, locked until the caller's transaction ends; None if there is no such row."""
    wait = check_seconds("wait", options.get("wait"), most=LONGEST_ROW_WAIT)
    nowait, skip_locked = options.get("nowait", False), options.get("skip_locked", False)
    if sum((wait is not None, nowait, skip_locked)) > 1:
        raise InvalidRequest("wait", wait, "one of wait, nowait and skip_locked")
    _check_transaction(connection)
    strength = "FOR SHARE" if options.get("shared") else "FOR UPDATE"
    ending = " NOWAIT" if nowait or wait == 0 else " SKIP LOCKED" if skip_locked else ""
    place = identifier("table", table)
    column = identifier("column", options.get("column", "id"))
    sql = f"SELECT * FROM {place} WHERE {column} = %s {strength}{ending}"
    limit = wait if wait else None
    started = time.monotonic()
    # Behind a savepoint: an error would end the caller's transaction otherwise.
    await execute(connection, f"SAVEPOINT {_SAVEPOINT}")
    try:
        found = await _select(connection, sql, key, limit)
    except Exception as error:
        await execute(connection, f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
        await execute(connection, f"RELEASE SAVEPOINT {_SAVEPOINT}")
        raise _translated(error, f"{table}:{key}", time.monotonic() - started) from error
    await execute(connection, f"RELEASE SAVEPOINT {_SAVEPOINT}")
    return found


async def _select(connection: Any, sql: str, key: Any, limit: float | None) -> dict[str, Any] | None:
    before: str | None = None
    if limit is not None:
        setting = await execute(connection, "SELECT current_setting('lock_timeout') AS setting")
        before = setting.rows[0]["setting"]
        await _set_limit(connection, f"{max(1, round(limit * 1000))}ms")
    rows = (await execute(connection, sql, (key,))).rows
    if before is not None:
        # It is session state: the caller's next statement has the caller's own limit. (After an
        # error the savepoint takes it back.)
        await _set_limit(connection, before)
    return rows[0] if rows else None


async def _set_limit(connection: Any, value: str) -> None:
    await execute(connection, "SELECT set_config('lock_timeout', %s, true)", (value,))


def _check_transaction(connection: Any) -> None:
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    if getattr(connection, "autocommit", False) is True and status == _IDLE:
        raise InvalidRequest(
            "connection", connection, "a row's lock ends with its transaction, and autocommit has none: begin one first"
        )


def _translated(error: Exception, name: str, waited: float) -> Exception:
    cause = getattr(error, "orig", None) or error
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    if state == _NOT_AVAILABLE:
        return NotAcquired(name, waited)
    if state == _DEADLOCK:
        return Deadlock(name, [Link("this transaction", "", "", 0, "", "rows that another one waits for", name)])
    return error
