"""A database as the memory of a middleware: each check is a transaction of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from holdfast.fence.sql import SqlFence
from holdfast.fence.token import Token


class SqlStore:
    """Keeps the highest tokens in a database, over a connection that `connect` makes for each check.

    `connect` gives a DB-API connection that is not in autocommit mode, which is closed after the check, or
    given back if it came from a pool's `getconn`; or a context manager that gives one. It is called in any
    thread. Where connecting is slow, give what a pool has: `pool.connection` of psycopg_pool,
    `engine.raw_connection` of SQLAlchemy.
    """

    def __init__(self, connect: Callable[[], Any], fence: SqlFence | None = None) -> None:
        self._connect, self._fence = connect, fence or SqlFence()

    def check(self, grant: Token, *, resource: str | None = None, once: bool = False) -> None:
        """Raise StaleToken if a higher token was seen; else remember this one."""
        made = self._connect()
        if getattr(self._connect, "__name__", "") == "getconn":
            pool: Any = getattr(self._connect, "__self__", None)
            # A connection that is only closed would count as lent for ever.
            try:
                self._check(made, grant, resource, once)
            finally:
                pool.putconn(made)
            return
        # To close a connection of psycopg_pool would not give it back; its context manager, which has no cursor, does.
        with closing(made) if hasattr(made, "cursor") else made as connection:
            self._check(connection, grant, resource, once)

    def _check(self, connection: Any, grant: Token, resource: str | None, once: bool) -> None:
        try:
            self._fence.check(connection, grant, resource=resource, once=once)
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
