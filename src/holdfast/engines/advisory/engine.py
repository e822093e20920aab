"""`postgresql://…?recipe=advisory`: session advisory locks, the least that PostgreSQL needs for a lock.

One round trip to take, one to give back, and no table. A grant lives as long as the connection that
took it: the server lets go the moment it sees that gone, which may be before the holder knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

from holdfast.core.table.rows import Session
from holdfast.core.urls import Url
from holdfast.engines.advisory import keys
from holdfast.engines.advisory.holdings import AdvisoryBell, Holdings
from holdfast.engines.advisory.verbs import AdvisoryVerbs
from holdfast.engines.checkup import Finding
from holdfast.engines.postgres.connections import MEANING, Connections
from holdfast.engines.postgres.doctor import check_up
from holdfast.engines.postgres.site import Site
from holdfast.engines.postgres.sockets import LoopSockets, Sockets, ThreadSockets
from holdfast.engines.postgres.wire import Wire, prepared
from holdfast.model import Guarantees
from holdfast.runtime.asyncio import AsyncioIo
from holdfast.runtime.blocking import BlockingIo

MOST_CONNECTIONS = 90
"""Each owner that holds or waits has a connection of its own; a server takes 100 unless told otherwise."""

GUARANTEES = Guarantees(
    consensus=False,
    durable=False,
    leased=False,
    fair=True,
    notified=True,
    deadlock_detection=True,
    fencing="clock",
    clock="wall",
    modes=frozenset({"exclusive", "shared"}),
    events=frozenset(),
    cells=False,
    recorded=False,
    hand_over=False,
    lost_node="When the server or the connection goes, everything that was held on it is free at once.",
    summary="Excludes everybody who uses the same database while their connections live; there is no lease, so the "
    "server may let go before the holder knows, and tokens are the server's clock.",
)


class AdvisoryConnections(Connections):
    """Connections whose sessions are what holds the locks."""

    settings: ClassVar[dict[str, str]] = MEANING | {
        # A wait is as long as its caller wants, and is ended by a cancel.
        "lock_timeout": "0",
        "statement_timeout": "0",
    }

    opened: Callable[[Wire], None]
    holdings: Holdings

    def _places(self) -> list[int]:
        """While something is held, only its own host: another server would grant the same locks again."""
        return [self.holdings.place] if self.holdings.taken else super()._places()

    async def _prepare(self, wire: Wire, commits: str, until: float) -> None:
        """There is no table; but somebody has to see the connection break."""
        await wire.send([prepared(each) for each in keys.STATEMENTS], until)
        self.opened(wire)


class NoPort:
    """Nothing is sent as a command here."""

    def call(self, request: Any, until: float) -> Any:
        raise AssertionError(f"the advisory recipe has no command {request!r}")


class NoAsyncioPort:
    """The same for tasks."""

    async def call(self, request: Any, until: float) -> Any:
        raise AssertionError(f"the advisory recipe has no command {request!r}")


class AdvisoryEngine(Site):
    """Session advisory locks of PostgreSQL."""

    guarantees = GUARANTEES
    instead = "postgresql:// without ?recipe=advisory"

    def __init__(self, url: Url, namespace: str) -> None:
        super().__init__(url, namespace)
        self.most = self.place.connections if "connections" in url.options else MOST_CONNECTIONS

    def _start(self) -> None:
        super()._start()
        self._holdings = Holdings()

    def _make(self, sockets: Sockets) -> Connections:
        connections = AdvisoryConnections(self.place, sockets, self.most, self._checked)
        connections.opened, connections.holdings = self._holdings.opened, self._holdings
        self._connections.append(connections)
        return connections

    def blocking(self) -> AdvisoryVerbs:
        bell = AdvisoryBell(self._holdings, self._tell)
        self._bells.append(bell)
        return KeeperVerbs(BlockingIo(NoPort()), bell, self._make(ThreadSockets()), self._holdings)

    def asyncio(self, loop: asyncio.AbstractEventLoop) -> AdvisoryVerbs:
        io = AsyncioIo(NoAsyncioPort(), loop)
        return AdvisoryVerbs(io, io.signal(), self._make(LoopSockets(loop)), self._holdings, loop)

    def check_up(self) -> list[Finding]:
        """What `doctor` finds here."""
        return check_up(self.place, leased=False)


class KeeperVerbs(AdvisoryVerbs):
    """Verbs of a thread; whoever opens a session is the keeper, and its bell is the one that watches."""

    async def open_session(self, session: Session, until: float) -> Any:
        assert isinstance(self.bell, AdvisoryBell)
        self.holdings.bell = self.bell
        self.holdings.ttl = session.ttl
        return await super().open_session(session, until)
