"""Statements on a connection that the caller brings: one source for DB-API connections and asynchronous ones."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.errors import InvalidRequest

_MYSQL = frozenset({"pymysql", "MySQLdb", "mysql", "mariadb", "aiomysql", "asyncmy"})
_PART = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}")


class Outcome(NamedTuple):
    """What a statement came to."""

    rows: list[dict[str, Any]]
    changed: int


def identifier(argument: str, text: object) -> str:
    """A table or column, quoted; `schema.table` is two. Only plain ones: nothing in them has to be escaped."""
    parts = text.split(".") if isinstance(text, str) else []
    if not parts or len(parts) > 2 or not all(_PART.fullmatch(part) for part in parts):
        raise InvalidRequest(argument, text, "a name of letters, digits and underscores, with its schema if need be")
    return ".".join(f'"{part}"' for part in parts)


def is_mysql(connection: object) -> bool:
    """Whether it is a connection of a driver for MariaDB and MySQL."""
    return type(connection).__module__.partition(".")[0] in _MYSQL


def written_for(connection: object, sql: str) -> str:
    """The statement as this driver takes it: what stands for a value, and what a name is quoted by."""
    driver = type(connection).__module__.partition(".")[0]
    if is_mysql(connection):
        return sql.replace('"', "`")
    return sql.replace("%s", "?") if driver in ("sqlite3", "aiosqlite") else sql


async def settle(found: Any) -> Any:
    """What a driver's call gives, whether it is awaited or not."""
    return await found if inspect.isawaitable(found) else found


async def execute(connection: Any, sql: str, values: Sequence[Any] = ()) -> Outcome:
    """Run one statement; its rows as dictionaries."""
    cursor = await settle(connection.cursor())
    try:
        await settle(cursor.execute(written_for(connection, sql), tuple(values)))
        if cursor.description is None:
            return Outcome([], cursor.rowcount)
        columns = [column[0] for column in cursor.description]
        rows = await settle(cursor.fetchall())
    finally:
        await settle(cursor.close())
    return Outcome([row if isinstance(row, dict) else dict(zip(columns, row, strict=True)) for row in rows], len(rows))
