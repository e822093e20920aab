"""A token in a database session, for triggers that refuse a write without one."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any

from holdfast.errors import InvalidRequest, StaleToken
from holdfast.fence.sql_connections import Database, is_old_snapshot
from holdfast.fence.sqlite_box import Box, box_of
from holdfast.fence.token import Presented
from holdfast.runtime.blocking import run

_SET = {
    "postgresql": "SELECT set_config('holdfast.token', :told, true)",
    "mysql": "SET @holdfast_token = :told",
}
_STALE = re.compile(r"holdfast: token (\d+) is stale for (\S+): (\d+) was seen")
_STALE_WITHOUT_NUMBERS = re.compile(r"holdfast: the token is stale for (\S+)")


class TokenInSession:
    """A `with` (or `async with`) whose writes carry a token; a refusal comes out as StaleToken.

    In PostgreSQL the token ends with the transaction as well. In MariaDB, MySQL and SQLite it would
    stay with the connection, and is taken away at the end of the `with`.
    """

    def __init__(self, database: Database, presented: Presented, highest: str) -> None:
        self._database, self._presented, self._highest = database, presented, highest
        self._box: Box | None = None

    def __enter__(self) -> None:
        if self._database.asynchronous:
            raise InvalidRequest("connection", "asyncio", "use `async with` for a connection of an asyncio driver")
        run(self._begin())

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        run(self._end(error))

    async def __aenter__(self) -> None:
        await self._begin()

    async def __aexit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        await self._end(error)

    async def _begin(self) -> None:
        if self._database.dialect == "postgresql" and await self._database.autocommits():
            raise InvalidRequest("connection", "autocommit", "the token lives in a transaction: begin one first")
        await self._tell(self._presented.header)

    async def _end(self, error: BaseException | None) -> None:
        # In PostgreSQL it ends with the transaction. To say so after a commit would begin one that nobody ends.
        if self._database.dialect != "postgresql" or (error is None and await self._database.in_transaction()):
            await self._tell(None)
        if error is not None and (stale := await self._stale(error)) is not None:
            raise stale from error

    async def _tell(self, told: str | None) -> None:
        if self._database.dialect == "sqlite":
            # Taken away without a word to the connection: a broken session of SQLAlchemy would not pass it on.
            self._box = self._box or await box_of(self._database)
            self._box.told = told
        else:
            absent = "" if self._database.dialect == "postgresql" else None
            await self._database.execute(_SET[self._database.dialect], {"told": absent if told is None else told})

    async def _stale(self, error: BaseException) -> StaleToken | None:
        said = str(error)
        if self._database.dialect == "mysql" and is_old_snapshot(error):
            # MariaDB rolled back before the trigger could judge.
            refused = self._presented
            row = (await self._database.execute(self._highest, {"resource": refused.resource.encode()})).row
            highest = int(row[0]) if row else 0
            return StaleToken(refused.resource, refused.token, highest) if refused.is_stale(highest) else None
        if matched := _STALE.search(said):
            return StaleToken(matched[2], int(matched[1]), int(matched[3]))
        if matched := _STALE_WITHOUT_NUMBERS.search(said):
            parameters: dict[str, Any] = {"resource": self._presented.resource}
            row = (await self._database.execute(self._highest, parameters)).row
            return StaleToken(matched[1], self._presented.token, int(row[0]) if row else self._presented.token)
        return None
