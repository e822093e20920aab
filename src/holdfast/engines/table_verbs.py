"""The verbs of every table engine: each is one command to the lock table, wherever it lives."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from holdfast.core.table import cells, commands
from holdfast.core.table.rows import Session
from holdfast.model import Claim, LockInfo
from holdfast.runtime.io import Io, Signal


class TableVerbs:
    """Speaks to a lock table through an Io."""

    def __init__(self, io: Io, bell: Signal) -> None:
        self.io, self.bell = io, bell
        self._call = io.call

    async def open_session(self, session: Session, until: float) -> Any:
        return await self._call(commands.Open(session), until)

    async def renew(self, session: str, until: float) -> Any:
        return await self._call(commands.Renew(session), until)

    async def sweep(self, until: float) -> Any:
        return await self._call(commands.Sweep(), until)

    async def close_session(self, session: str, until: float) -> Any:
        return await self._call(commands.Close(session), until)

    # These two are most of what there is to do, and leave the awaiting to whoever asks.

    def enter(self, claim: Claim, until: float) -> Coroutine[Any, Any, Any]:
        return self._call(commands.Enter(claim), until)

    def release(self, claim: Claim, until: float) -> Coroutine[Any, Any, Any]:
        return self._call(commands.Release(claim), until)

    async def look(self, claim: Claim, until: float) -> Any:
        return await self._call(commands.Look(claim), until)

    async def confirm(self, claim: Claim, until: float) -> Any:
        return await self.look(claim, until)

    async def own_claims(self, session: str, until: float) -> Any:
        found: list[tuple[Claim, int | None]] = []
        page = await self._call(commands.OwnClaims(session), until)
        while isinstance(page, commands.OwnClaimsPage):
            found += page.claims
            if not page.more:
                return found
            page = await self._call(commands.OwnClaims(session, page.claims[-1][0].id), until)
        return page

    async def leave(self, claim: Claim, unanswered: bool, until: float) -> Any:
        return await self._call(commands.Leave(claim, unanswered), until)

    async def hand_over(self, claim: Claim, ticket: str, until: float) -> Any:
        return await self._call(commands.HandOver(claim, ticket), until)

    async def adopt(self, claim: Claim, source: str, ticket: str, until: float) -> Any:
        return await self._call(commands.Adopt(claim, source, ticket), until)

    async def break_lock(self, kind: str, name: str, force: bool, until: float) -> Any:
        return await self._call(commands.Break(kind, name, force), until)

    async def inspect(self, kind: str, name: str, until: float) -> LockInfo:
        info: LockInfo = await self._call(commands.Inspect(kind, name), until)
        return info

    async def list(self, prefix: str, kind: str, until: float) -> Any:
        return await self._call(commands.List(prefix, kind), until)

    async def cell_get(self, kind: str, name: str, until: float) -> Any:
        return await self._call(commands.CellGet(kind, name), until)

    async def cell_set(
        self, kind: str, name: str, value: bytes | None, version: int | None, keep: float | None, until: float
    ) -> Any:
        return await self._call(commands.CellSet(kind, name, value, version, keep), until)

    async def watch(self, session: str, id_: str, kind: str, prefix: str, until: float) -> Any:
        return await self._call(commands.Subscribe(session, id_, kind, prefix), until)

    async def cell_watch(self, session: str, id_: str, kind: str, name: str, until: float) -> Any:
        return await self._call(commands.Subscribe(session, id_, cells.watch_kind(kind), name), until)

    async def fetch(self, session: str, id_: str, after: int, until: float) -> Any:
        return await self._call(commands.Fetch(session, id_, after), until)

    async def unwatch(self, session: str, id_: str, until: float) -> Any:
        return await self._call(commands.Unsubscribe(session, id_), until)

    async def raise_tokens(self, above: int, until: float) -> Any:
        return await self._call(commands.RaiseTokens(above), until)
