"""What is held, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, cast

from holdfast.api.body import Body
from holdfast.api.leaving import WithAwaitedExit, entering
from holdfast.locks import handing, several
from holdfast.locks.client import Client as Core
from holdfast.locks.grant import GrantView
from holdfast.locks.hold import Entry
from holdfast.locks.release import release
from holdfast.locks.unsettled import Scope, Unsettled


class Grant(GrantView):
    __doc__ = GrantView.__doc__
    __slots__ = ()

    @property
    def lost(self) -> asyncio.Event:
        """Set once the grant is lost."""
        return cast(asyncio.Event, self._hold.lost_event())

    async def renew(self) -> None:
        """Send a heartbeat now and wait for its answer; it serves everything that this client holds.

        LockLost if the engine does not have this grant any more, also if it came back with an older state.
        """
        self.check()
        await self._client.renew(self._hold)
        self.check()

    async def release(self) -> None:
        """Give the lock back. LockLost if it was lost before, NotHeld if it was released before."""
        await release(self._client, self._entry)

    async def hand_over(self) -> str:
        """A secret text by which another client may adopt this grant; this one holds until then."""
        self.check()
        return await handing.hand_over(self._client, self._hold)

    __aexit__ = WithAwaitedExit()

    async def __aenter__(self) -> Grant:
        entering(self).entries = entries_of(self)
        self._begin_body()
        return self

    def _begin_body(self) -> None:
        self._body = Body([self._hold], self.release)

    def _leave(self, _: Scope, error: BaseException | None) -> Coroutine[Any, Any, None]:
        return end_body(self, error)

    def _record(self) -> Unsettled:
        return self._client.unsettled


def end_body(grant: Grant | Grants, error: BaseException | None) -> Coroutine[Any, Any, None]:
    """Release at the end of an `async with`. What the body raised comes first; a loss is noted on it."""
    body = grant._body
    # It knows the grant, as the grant knows it: left so, each would wait for the garbage collector.
    del grant._body
    return body.end(error)


def entries_of(grant: Grant | Grants) -> list[Entry]:
    """What is given back by releasing this."""
    return [grant._entry] if isinstance(grant, Grant) else [each._entry for each in grant.values()]


class Grants(Mapping[str, Grant]):
    """Several grants that are released and lost together."""

    def __init__(self, client: Core, entries: list[Entry], on_lost: Callable[[Grant], object] | None = None) -> None:
        self._client, self._holds = client, [entry.held for entry in entries]
        self._grants = {entry.claim.name: Grant(client, entry, on_lost) for entry in entries}
        self._ties = several.tie_together(client, self._holds)

    def __getitem__(self, name: str) -> Grant:
        return self._grants[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._grants)

    def __len__(self) -> int:
        return len(self._grants)

    @property
    def valid(self) -> bool:
        """Whether all of them are held now."""
        return all(grant.valid for grant in self.values())

    def check(self) -> None:
        """Raise LockLost or NotHeld unless all of them are held now."""
        for grant in self.values():
            grant.check()

    async def release(self) -> None:
        """Give all of them back. LockLost if they were lost before."""
        self._client.io.check_caller()
        for untie in self._ties:
            untie()
        await several.release_all(self._client, list(self.values()))

    __aexit__ = WithAwaitedExit()

    async def __aenter__(self) -> Grants:
        entering(self).entries = entries_of(self)
        self._begin_body()
        return self

    def _begin_body(self) -> None:
        self._body = Body(self._holds, self.release)

    def _leave(self, _: Scope, error: BaseException | None) -> Coroutine[Any, Any, None]:
        return end_body(self, error)

    def _record(self) -> Unsettled:
        return self._client.unsettled
