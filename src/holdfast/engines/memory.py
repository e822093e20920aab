"""`memory://`: the lock table in this process. `memory://x` is another table than `memory://y`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.core.table import Dictionary, apply
from holdfast.core.table.commands import Command, Notice, Open
from holdfast.core.table.rebuilding import rebuilt
from holdfast.core.urls import Url
from holdfast.engines.engine import Deliver, nobody
from holdfast.engines.table_verbs import TableVerbs
from holdfast.errors import EngineFailure, InvalidRequest
from holdfast.model import Guarantees
from holdfast.runtime import clock
from holdfast.runtime.blocking import BlockingIo, ThreadSignal
from holdfast.runtime.calls import UNDER_WAY, new_lock
from holdfast.runtime.turns import Turns

if TYPE_CHECKING:
    import asyncio

    from holdfast.runtime.simulated import World

GUARANTEES = Guarantees(
    consensus=False,
    durable=False,
    leased=True,
    fair=True,
    notified=True,
    deadlock_detection=True,
    fencing="strict",
    clock="monotonic",
    modes=frozenset({"exclusive", "shared", "semaphore", "subtree"}),
    events=frozenset({"granted", "queued", "released", "expired", "broken", "deadlock"}),
    lost_node="The table ends with the process that it lives in.",
    summary="Excludes threads and tasks of one process; other processes do not see it.",
)


class MemoryTable:
    """One lock table, shared by all clients of this process that name it."""

    def __init__(self, now: Callable[[], float] = clock.now, wall: Callable[[], float] = time.time) -> None:
        self.now, self.wall = now, wall
        self.start()

    def start(self) -> None:
        """Be empty: a new table, or a fork's."""
        # Counting starts at the time of creation, so that a table made anew never repeats a token.
        self.rows = Dictionary(first_number=int(self.wall() * 1_000_000))
        self.clients: dict[str, Deliver] = {}
        """By session: who takes its notices."""
        # Reentrant, because then a thread can tell whether a step of its own is under way.
        self.lock = new_lock()
        self.under_way = self.half_made = False
        """`half_made`: whether an interrupt may have left a change that is not complete."""

    def apply(self, command: Command, deliver: Deliver) -> Any:
        with self.lock:
            if self.under_way:
                # Only a signal handler gets here, in the middle of a step of the same thread.
                raise EngineFailure("memory://", UNDER_WAY, "not done")
            self.under_way = True
            try:
                reply, sent = self._step(command, deliver)
            finally:
                self.under_way = False
        for receive, notice in sent:
            receive(notice)
        return reply

    def _step(self, command: Command, deliver: Deliver) -> tuple[Any, list[tuple[Deliver, Notice]]]:
        """What the command comes to, and whom to tell of it."""
        if isinstance(command, Open):
            self.clients[command.session.id] = deliver
        if self.half_made:
            # Here, and not when the interrupt came: another one could come in the middle of it, and leave it undone.
            self.rows = rebuilt(self.rows)
        self.half_made = True
        outcome = apply(command, self.now(), self.rows.answer, self.rows.put, wall=self.wall(), meter=self.rows)
        self.half_made = False
        sent = [(self.clients[notice.session], notice) for notice in outcome.notices if notice.session in self.clients]
        for id_ in [id_ for id_ in self.clients if id_ not in self.rows.sessions]:
            del self.clients[id_]
        return outcome.reply, sent

    def blocking(self, engine: MemoryEngine) -> TableVerbs:
        """Verbs for blocking callers of this table."""
        return TableVerbs(BlockingIo(MemoryPort(self, engine)), ThreadSignal())

    def asyncio(self, engine: MemoryEngine, loop: asyncio.AbstractEventLoop) -> TableVerbs:
        """Verbs for tasks."""
        from holdfast.runtime.asyncio import AsyncioIo  # not read by a program that blocks

        io = AsyncioIo(MemoryAsyncioPort(MemoryPort(self, engine)), loop)
        return TableVerbs(io, io.signal())


class MemoryPort:
    """Sends commands to a table in this process."""

    def __init__(self, table: MemoryTable, engine: MemoryEngine) -> None:
        self.table, self.engine = table, engine

    def call(self, request: Command, until: float) -> Any:
        return self.table.apply(request, self.engine.deliver)


class MemoryAsyncioPort:
    """The same for tasks: a step takes microseconds, so it runs on the loop."""

    def __init__(self, port: MemoryPort) -> None:
        self.port, self.turns = port, Turns()

    async def call(self, request: Command, until: float) -> Any:
        await self.turns.give()
        return self.port.call(request, until)


_tables: dict[str, MemoryTable] = {}
"""By name. Each use is one step of a dictionary: a lock would stop a signal handler that connects."""


def table(name: str) -> MemoryTable:
    """The table of this name in this process."""
    return _tables.setdefault(name, MemoryTable())


def use_table(name: str, made: MemoryTable | None) -> None:
    """Let clients of this name use a table that was made elsewhere, as tests do; None: forget it."""
    if made is None:
        _tables.pop(name, None)
    else:
        _tables[name] = made


class MemoryEngine:
    """The lock table in this process."""

    schemes = ("memory",)
    options = frozenset[str]()
    guarantees = GUARANTEES
    shortest_ttl = 0.1

    def __init__(self, url: Url, namespace: str) -> None:
        if url.path or len(url.hosts) > 1:
            raise InvalidRequest("url", str(url), "memory:// takes one name at most, as in memory://tests")
        self.address = str(url)
        self.deliver: Deliver = nobody
        self.table = table(url.hosts[0] if url.hosts else "")

    def blocking(self) -> TableVerbs:
        return self.table.blocking(self)

    def asyncio(self, loop: asyncio.AbstractEventLoop) -> TableVerbs:
        return self.table.asyncio(self, loop)

    def simulated(self, world: World, table: MemoryTable) -> TableVerbs:
        """Verbs in virtual time, on a table that the world's clock drives."""
        io = world.io(MemoryPort(table, self))
        return TableVerbs(io, io.signal())

    def abandon(self) -> None:
        """A fork has a table of its own: what the parent's threads were doing to theirs stays there."""
        self.table.start()

    def close(self) -> None:
        """Nothing is open."""
