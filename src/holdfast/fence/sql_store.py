"""A database as the memory of a middleware: each check is a transaction of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from holdfast.fence.sql import SqlFence
from holdfast.fence.token import Token


class SqlStore:
    """Keeps the highest tokens in a database, over a connection that `connect` makes for each check.

    `connect` gives a DB-API connection that is not in autocommit mode, and is called in any thread;
    give the one of a pool where connecting is slow.
    """

    def __init__(self, connect: Callable[[], Any], fence: SqlFence | None = None) -> None:
        self._connect, self._fence = connect, fence or SqlFence()

    def check(self, grant: Token, *, resource: str | None = None, once: bool = False) -> None:
        """Raise StaleToken if a higher token was seen; else remember this one."""
        with closing(self._connect()) as connection:
            try:
                self._fence.check(connection, grant, resource=resource, once=once)
                connection.commit()
            except BaseException:
                connection.rollback()
                raise
