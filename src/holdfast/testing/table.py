"""A lock table in memory whose clock jumps and whose answers can be lost."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.core.table.changes import PutSession
from holdfast.core.table.commands import Command, Enter, Leave, Release, Renew
from holdfast.core.table.rows import Row
from holdfast.engines.memory import MemoryAsyncioPort, MemoryEngine, MemoryPort, MemoryTable
from holdfast.engines.table_verbs import TableVerbs
from holdfast.errors import EngineFailure, InvalidRequest
from holdfast.runtime.asyncio import AsyncioIo, AsyncioPort, AsyncioSignal, call_in_loop
from holdfast.runtime.blocking import BlockingIo
from holdfast.runtime.io import Signal
from holdfast.testing.clock import Clock, ClockSignal

CALLS: dict[str, tuple[type, ...]] = {
    "acquire": (Enter,),
    "release": (Release,),
    "withdraw": (Leave,),
    "any": (Enter, Release, Leave),
}
"""Which requests `drop_next_reply` may mean."""


class Port(MemoryPort):
    """Sends commands to the table; the answer may get lost on its way back."""

    table: RehearsalTable

    def call(self, request: Command, until: float) -> Any:
        if isinstance(request, Renew) and request.session in self.table.silent:
            raise EngineFailure(self.engine.address, "its heartbeats do not get through any more", "not done")
        reply = super().call(request, until)
        if self.table.loses_reply_to(request):
            raise EngineFailure(self.engine.address, "its reply was lost, as the test wanted", "unknown")
        return reply


class ThreadIo(BlockingIo):
    """Blocks by the rehearsal's clock."""

    def __init__(self, port: Port, clock: Clock) -> None:
        super().__init__(port)
        self.clock = clock
        self.now = clock.now

    async def wait(self, signal: Signal, until: float | None) -> bool:
        assert isinstance(signal, ClockSignal)
        return self.clock.wait(signal, until)

    def signal(self) -> ClockSignal:  # type: ignore[override]
        return ClockSignal(self.clock)


class KeeperSignal(ClockSignal):
    """Where a keeper waits. The first to do so is the keeper."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.known = False


class KeeperIo(ThreadIo):
    """The same for verbs that a keeper may use: a jump of the clock waits for it."""

    async def wait(self, signal: Signal, until: float | None) -> bool:
        if isinstance(signal, KeeperSignal) and not signal.known:
            signal.known = True
            self.clock.keeps(signal)
        return await super().wait(signal, until)


class LoopIo(AsyncioIo):
    """Awaits by the rehearsal's clock."""

    def __init__(self, port: AsyncioPort, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        super().__init__(port, loop)
        self.clock = clock
        self.now = clock.now

    async def wait(self, signal: Signal, until: float | None) -> bool:
        self.check_caller()
        assert isinstance(signal, AsyncioSignal)
        self.clock.on_jump[signal] = lambda: call_in_loop(self.loop, signal._wake)
        try:
            while not signal.is_set():
                left = None if until is None else until - self.now()
                if left is not None and left <= 0:
                    # Others get their turn, as they would while it waited.
                    await asyncio.sleep(0)
                    break
                await signal.wait(left)
        finally:
            del self.clock.on_jump[signal]
        return signal.is_set()


class RehearsalTable(MemoryTable):
    """The lock table of one rehearsal."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.silent: set[str] = set()
        """Sessions that were ended behind their holders' backs: they are not told."""
        self._losing: list[tuple[type, ...]] = []
        super().__init__(clock.now, clock.wall)

    def blocking(self, engine: MemoryEngine) -> TableVerbs:
        return TableVerbs(KeeperIo(Port(self, engine), self.clock), KeeperSignal(self.clock))

    def asyncio(self, engine: MemoryEngine, loop: asyncio.AbstractEventLoop) -> TableVerbs:
        io = LoopIo(MemoryAsyncioPort(Port(self, engine)), loop, self.clock)
        return TableVerbs(io, io.signal())

    def lose_reply(self, of: str) -> None:
        """Lose the answer to the next request of this kind."""
        if of not in CALLS:
            raise InvalidRequest("of", of, f"one of {', '.join(CALLS)}")
        self._losing.append(CALLS[of])

    def loses_reply_to(self, request: Command) -> bool:
        with self.lock:
            for kinds in self._losing:
                if isinstance(request, kinds):
                    self._losing.remove(kinds)
                    return True
        return False

    def holders(self, name: str, kind: str) -> list[Row]:
        """The claims that hold a lock, in every namespace."""
        with self.lock:
            return [
                row
                for row in self.rows.rows.values()
                if row.token is not None
                and (row.claim.name, row.claim.kind.partition(".")[2]) == (name, kind)
                and self.rows.alive(row, self.now())
            ]

    def end_session(self, session_id: str) -> None:
        """The ttl of a session is over, as far as the engine can tell."""
        with self.lock:
            session = self.rows.sessions.get(session_id)
            if session is not None:
                self.rows.put(PutSession(session._replace(expires_at=self.now())))
