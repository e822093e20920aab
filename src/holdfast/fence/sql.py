"""The fence in a database: one statement inside the caller's own transaction."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, overload

from holdfast.errors import Conflict, HoldfastError, InvalidRequest, StaleToken
from holdfast.fence.sql_connections import Database, database_of, is_missing_table, is_old_snapshot
from holdfast.fence.sql_session import TokenInSession
from holdfast.fence.sql_statements import DEFAULT_TABLE, Statements, check_identifier, statements
from holdfast.fence.token import TOKENS_END, Presented, Token, present
from holdfast.runtime.blocking import run

_ASKS = 3


class OldSnapshot(Conflict):
    """The transaction read before the check, and a later holder or writer came in between. MariaDB rolled it back.

    The token is not stale: run the whole transaction again, and check first in it.
    """

    def __init__(self, resource: str, presented: int, highest: int) -> None:
        self.name, self.expected, self.current, self.what = resource, presented, highest, "token"
        self.resource, self.presented, self.highest = resource, presented, highest
        HoldfastError.__init__(
            self,
            f"the fence of {resource!r} has changed since this transaction first read, and MariaDB rolled it back; "
            f"token {presented} is not stale ({highest} was seen): run the transaction again, and check first in it",
        )


class AsyncDatabase(Protocol):
    """A connection or session of an asyncio driver."""

    async def __aenter__(self) -> Any: ...


class SqlFence:
    """Refuses, in a database, a token lower than one it has seen.

    PostgreSQL, SQLite, MariaDB and MySQL; over a DB-API connection or cursor, or a connection or
    session of SQLAlchemy. For those of an asyncio driver every method is awaited.
    """

    def __init__(self, table: str = DEFAULT_TABLE) -> None:
        self.table = check_identifier(table)

    def __repr__(self) -> str:
        return f"SqlFence(table={self.table!r})"

    @overload
    def check(  # type: ignore[overload-overlap]
        self, connection: AsyncDatabase, grant: Token, *, resource: str | None = None, once: bool = False
    ) -> Coroutine[Any, Any, None]: ...
    @overload
    def check(self, connection: object, grant: Token, *, resource: str | None = None, once: bool = False) -> None: ...
    def check(
        self, connection: Any, grant: Token, *, resource: str | None = None, once: bool = False
    ) -> Coroutine[Any, Any, None] | None:
        """Raise StaleToken if a higher token was seen; else remember this one.

        It holds the resource's row until the caller's transaction ends, so nothing can come between
        the check and the writes after it. An equal token passes, unless `once`.
        """
        presented = present(grant, resource, once=once)
        database = database_of(connection)
        work = self._check(database, presented, once)
        return work if database.asynchronous else run(work)

    async def _check(self, database: Database, presented: Presented, once: bool) -> None:
        if await database.autocommits():
            raise InvalidRequest(
                "connection",
                "autocommit",
                "the check has to be in one transaction with the writes that it guards: begin one first",
            )
        told = statements(database.dialect, self.table)
        try:
            highest = await self._ask(database, told, presented, once)
        except Exception as error:
            if is_missing_table(error):
                raise self._missing() from error
            if database.dialect == "mysql" and is_old_snapshot(error):
                raise await self._judged_anew(database, told, presented, once) from error
            raise
        if highest is not None:
            raise StaleToken(presented.resource, presented.token, highest)

    async def _judged_anew(
        self, database: Database, told: Statements, presented: Presented, once: bool
    ) -> StaleToken | OldSnapshot:
        """What the fence says after MariaDB has rolled the transaction back: this reads in a new one."""
        row = (await database.execute(told.highest, {"resource": presented.resource.encode()})).row
        highest = int(row[0]) if row else 0
        refusal = StaleToken if presented.is_stale(highest, once=once) else OldSnapshot
        return refusal(presented.resource, presented.token, highest)

    async def _ask(self, database: Database, told: Statements, presented: Presented, once: bool) -> int | None:
        """The highest token, if it refuses this one."""
        statement = told.named(once, presented.shared)
        key = presented.resource.encode() if database.dialect == "mysql" else presented.resource
        parameters = {"resource": key, "token": presented.token}
        if database.dialect == "postgresql" and presented.shared:
            return await self._ask_to_share(database, statement, presented)
        answer = await database.execute(statement, parameters)
        if database.dialect == "mysql":
            return answer.insert_id - TOKENS_END if answer.insert_id >= TOKENS_END else None
        if answer.row is not None:
            return None
        seen = await database.execute(told.highest, parameters)
        return int(seen.row[0]) if seen.row else presented.token

    async def _ask_to_share(self, database: Database, statement: str, presented: Presented) -> int | None:
        for _ in range(_ASKS):
            answer = await database.execute(statement, {"resource": presented.resource})
            if answer.row is not None:
                highest = int(answer.row[0])
                return highest if presented.is_stale(highest) else None
        raise AssertionError(
            f"the row of {presented.resource!r} in {self.table} comes and goes: rows are never deleted"
        )

    @overload
    def create(self, connection: AsyncDatabase) -> Coroutine[Any, Any, None]: ...  # type: ignore[overload-overlap]
    @overload
    def create(self, connection: object) -> None: ...
    def create(self, connection: Any) -> Coroutine[Any, Any, None] | None:
        """Create the fence's table if it is not there. On MariaDB and MySQL this commits."""
        database = database_of(connection)
        work = self._create(database)
        return work if database.asynchronous else run(work)

    async def _create(self, database: Database) -> None:
        await database.execute(statements(database.dialect, self.table).create, {})

    def present(self, connection: object, grant: Token, *, resource: str | None = None) -> TokenInSession:
        """A `with` in which the database's own triggers see the token; `async with` for an asyncio driver.

        For tables fenced by what `holdfast fence ddl` prints. `resource` is the key that they were
        fenced under, if it is not the lock's name.
        """
        database = database_of(connection)
        highest = statements(database.dialect, self.table).highest
        return TokenInSession(database, present(grant, resource), highest)

    def _missing(self) -> InvalidRequest:
        return InvalidRequest(
            "table",
            self.table,
            "the fence's table is not there: create it once, by SqlFence.create(connection) "
            "or by what `holdfast fence ddl` prints",
        )
