"""Being told what happens: the engine collects events, the client fetches them when it is rung."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import suppress
from math import inf
from typing import Any, Generic, TypeVar

from holdfast.core.names import check_prefix
from holdfast.core.table.commands import SessionOver
from holdfast.errors import EngineFailure, HoldfastError
from holdfast.locks.ability import need_events
from holdfast.locks.client import Client
from holdfast.locks.lost_data import lost_data
from holdfast.locks.session import Session
from holdfast.model import LockEvent
from holdfast.runtime.io import Signal

SAFETY_NET = 5.0
"""How long to go without looking, should a notice be lost."""

LAST_MOMENT = 0.05
"""How long the end of a watch may take where no time is left."""

T = TypeVar("T")

_numbers = itertools.count(1)


class Ended(Exception):
    """Whoever is told wanted to be told no more."""


class End:
    """The wish to be told no more: said by anybody, heard by whoever waits for something to happen."""

    def __init__(self) -> None:
        self.said = False
        self._signal: Signal | None = None

    def say(self) -> None:
        """From any thread, and safe to repeat."""
        self.said = True
        if self._signal is not None:
            self._signal.set()

    def rings(self, signal: Signal) -> None:
        """Set this when it is said."""
        self._signal = signal

    def check(self) -> None:
        if self.said:
            raise Ended


class Source(Generic[T]):
    """Where the elements of a stream come from. A call that is under way refers to this, and not to the stream."""

    def __init__(self, elements: AsyncIterator[T], end: End, *, says_begun: bool) -> None:
        self.elements, self._end, self._to_begin = elements, end, says_begun

    async def begin(self) -> None:
        """Start to be told, if the source says when it has started."""
        if self._to_begin:
            await anext(self.elements)
            self._to_begin = False

    async def ask(self) -> T:
        """The next element, or Ended."""
        self._end.check()
        await self.begin()
        try:
            return await anext(self.elements)
        except StopAsyncIteration:
            raise Ended from None


class Watching:
    """A watch on a prefix, or on one cell, for as long as the `async with` lasts; nothing takes longer than `by`.

    Where what happened is `read_anew` anyway, as a cell always is, nobody has to know that some of it was missed.
    """

    def __init__(
        self,
        client: Client,
        *,
        prefix: str = "",
        cell: tuple[str, str] | None = None,
        by: float = inf,
        read_anew: bool = False,
        end: End | None = None,
    ) -> None:
        self.read_anew = read_anew or cell is not None
        self.client, self.prefix, self.cell, self.by = client, prefix, cell, by
        self.id = f"w{next(_numbers)}"
        self.after = 0
        self.end = end or End()
        self.session: Session

    async def __aenter__(self) -> Watching:
        try:
            await self.begin()
        except BaseException as error:
            if hasattr(self, "session"):
                await self.__aexit__(type(error), error)
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        self.client.wakeups.forget(self.id)
        if not self.client.closed and self.session.over is None:
            # An engine that has just failed to answer is not waited for as long again.
            left = 0.0 if isinstance(error, EngineFailure) else self.until() - self.client.io.now()
            until = self.client.io.now() + max(left, LAST_MOMENT)
            unwatch = self.client.verbs.unwatch(self.session.id, self.id, until)
            # What cannot be ended now ends with the session, and collects no more than so many letters until then.
            with suppress(EngineFailure):
                await self.client.io.shielded(unwatch)

    def until(self) -> float:
        """When a request that is sent now has to be answered."""
        return min(self.by, self.client.until())

    async def begin(self) -> None:
        """Start to collect, under a new session if the last one ended."""
        client = self.client
        while True:
            self.session, self.after = await client.live_session(self.by), 0
            client.wakeups.expect(self.id)
            if self.cell is not None:
                kind, name = self.cell
                reply = await client.verbs.cell_watch(self.session.id, self.id, kind, name, self.until())
            else:
                reply = await client.verbs.watch(self.session.id, self.id, client.kind(""), self.prefix, self.until())
            if not isinstance(reply, SessionOver):
                return
            client.session_ended(self.session, reply)

    async def next_letters(self, until: float | None) -> tuple[LockEvent, ...]:
        """Wait for something to happen; nothing if `until` comes first, or if the watch had to begin anew.

        HoldfastError if something was missed, unless it is read anew.
        """
        client, io = self.client, self.client.io
        signal = client.wakeups.signal(self.id, io)
        self.end.rings(signal)
        self.end.check()
        while True:
            if self.session.over is None:
                reply = await client.verbs.fetch(self.session.id, self.id, self.after, self.until())
            else:
                # An engine that came back with an older state may have the session still: it is not renewed there.
                reply = SessionOver()
            if isinstance(reply, SessionOver):
                # What happened in between was not collected.
                client.wakeups.forget(self.id)
                former = self.session
                await self.begin()
                if not self.read_anew:
                    why = former.over or "the engine ended it or no longer has it"
                    raise HoldfastError(f"events of the watch were missed: {why}; begin it again")
                return ()
            if reply.overflowed and self.read_anew:
                self.after = reply.last
                return reply.events[-1:]
            if reply.lost:
                raise lost_data(client, "events of the watch were missed")
            if reply.overflowed:
                why = "it fell behind, or its connection was lost"
                raise HoldfastError(f"events of the watch were missed: {why}; begin it again")
            self.after = reply.last
            if reply.events or (until is not None and io.now() >= until):
                return reply.events
            look_at = io.now() + SAFETY_NET
            await io.wait(signal, look_at if until is None else min(until, look_at))
            signal.clear()
            self.end.check()
            client.check_open()


def watch(client: Client, prefix: str, end: End) -> AsyncIterator[Any]:
    """None once it has begun, then every event of locks under a prefix, in order."""
    check_prefix(prefix)
    need_events(client, "watch")
    return _events(client, prefix, end)


async def _events(client: Client, prefix: str, end: End) -> AsyncIterator[Any]:
    async with Watching(client, prefix=prefix, end=end) as watching:
        yield None
        while True:
            for event in await watching.next_letters(None):
                yield client.shown_event(event)
