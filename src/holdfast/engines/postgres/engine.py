"""`postgresql://user@host/database`: the lock table in PostgreSQL, for processes on many machines.

Short transactions, serialised by advisory locks where they can conflict; wake-ups by LISTEN and
NOTIFY on one connection a client; expiry on the database's clock.
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.core.table.commands import Command
from holdfast.core.urls import Url
from holdfast.engines.advisory.engine import AdvisoryEngine
from holdfast.engines.checkup import Finding
from holdfast.engines.engine import Engine
from holdfast.engines.memory import GUARANTEES as MEMORY
from holdfast.engines.postgres.bell import PostgresBell
from holdfast.engines.postgres.connections import Connections
from holdfast.engines.postgres.doctor import check_up
from holdfast.engines.postgres.ledger import Ledger
from holdfast.engines.postgres.site import Site
from holdfast.engines.postgres.sockets import LoopSockets, Sockets, ThreadSockets
from holdfast.engines.postgres.table import PostgresTable
from holdfast.engines.table_verbs import TableVerbs
from holdfast.errors import InvalidRequest
from holdfast.model import Guarantees
from holdfast.runtime.asyncio import AsyncioIo
from holdfast.runtime.blocking import BlockingIo, drive

GUARANTEES = Guarantees(
    consensus=False,
    durable=True,
    leased=True,
    fair=True,
    notified=True,
    deadlock_detection=True,
    fencing="strict",
    clock="wall",
    modes=MEMORY.modes,
    events=MEMORY.events,
    lost_node="While the server is down nothing is granted and what is held runs out; after its restart all is as it "
    "was. A failover to a replica that was not synchronous can lose grants and repeat tokens.",
    summary="Excludes everybody who uses the same database, on PostgreSQL's durability and its wall clock.",
)


class PostgresPort:
    """Sends a thread's commands to the table."""

    def __init__(self, table: PostgresTable) -> None:
        self.table = table

    def call(self, request: Command, until: float) -> Any:
        return drive(self.table.call(request, until))


class PostgresEngine(Site):
    """The lock table in PostgreSQL."""

    guarantees = GUARANTEES

    @classmethod
    def choose(cls, url: Url) -> type[Engine]:
        """The engine that a URL asks for by its recipe."""
        recipe = url.options.get("recipe", "table")
        if recipe == "table":
            return cls
        if recipe == "advisory":
            return AdvisoryEngine
        raise InvalidRequest("url option recipe", recipe, "it is table or advisory")

    def _start(self) -> None:
        super()._start()
        self._ledger = Ledger()

    def _table(self, sockets: Sockets) -> PostgresTable:
        connections = Connections(self.place, sockets, self.place.connections, self._checked)
        self._connections.append(connections)
        return PostgresTable(connections, self._ledger, self._tell)

    def blocking(self) -> TableVerbs:
        table = self._table(ThreadSockets())
        bell = PostgresBell(table)
        self._bells.append(bell)
        return TableVerbs(BlockingIo(PostgresPort(table)), bell)

    def asyncio(self, loop: asyncio.AbstractEventLoop) -> TableVerbs:
        io = AsyncioIo(self._table(LoopSockets(loop)), loop)
        return TableVerbs(io, io.signal())

    def check_up(self) -> list[Finding]:
        """What `doctor` finds here."""
        return check_up(self.place)
