"""`zookeeper://h1,h2,h3/chroot`: ephemeral sequential nodes, one session a client.

kazoo brings the connection and the session; the recipe is Holdfast's own. Blocking callers, tasks
and the keeper share one session and one connection, whose thread calls them back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.core.table.commands import GONE, MISSED, SHORTENED, Notice
from holdfast.core.urls import Url
from holdfast.engines.checkup import Finding
from holdfast.engines.engine import Deliver, nobody
from holdfast.engines.zookeeper.address import OPTIONS, parse_address
from holdfast.engines.zookeeper.asking import ZooKeeperAsyncioPort, ZooKeeperPort
from holdfast.engines.zookeeper.cells import Seen
from holdfast.engines.zookeeper.doctor import check_up
from holdfast.engines.zookeeper.ledger import Ledger
from holdfast.engines.zookeeper.life import proven
from holdfast.engines.zookeeper.line import Layout
from holdfast.engines.zookeeper.link import Link
from holdfast.engines.zookeeper.verbs import ZooKeeperVerbs
from holdfast.engines.zookeeper.watching import Stream, Watch
from holdfast.model import Guarantees
from holdfast.runtime.asyncio import AsyncioIo
from holdfast.runtime.blocking import BlockingIo

GUARANTEES = Guarantees(
    consensus=True,
    durable=True,
    leased=True,
    fair=True,
    notified=True,
    deadlock_detection=False,
    fencing="strict",
    clock="monotonic",
    modes=frozenset({"exclusive", "shared", "semaphore"}),
    events=frozenset({"granted", "queued", "released", "expired", "broken"}),
    lost_node="As long as a majority of the ensemble is up, nothing is lost: no grant, no place in line, no token.",
    summary="Exclusion rests on ZooKeeper's quorum; a holder that is cut off from the majority stops before its "
    "session can end there.",
)


class ZooKeeperEngine:
    """One client's way to an ensemble."""

    schemes = ("zookeeper",)
    options = OPTIONS
    guarantees = GUARANTEES
    shortest_ttl = 0.1

    def __init__(self, url: Url, namespace: str) -> None:
        self.address, self.place = str(url), parse_address(url)
        self.layout = Layout(self.place.chroot, namespace)
        self.deliver: Deliver = nobody
        self._count: Callable[[], None] = lambda: None
        self._start()

    def _start(self) -> None:
        self.ledger, self.seen = Ledger(self.address), Seen()
        self.watches: dict[str, Watch] = {}
        self.streams: dict[str, Stream] = {}

    def blocking(self) -> ZooKeeperVerbs:
        io = BlockingIo(ZooKeeperPort())
        return ZooKeeperVerbs(self, io, io.signal())

    def asyncio(self, loop: asyncio.AbstractEventLoop) -> ZooKeeperVerbs:
        io = AsyncioIo(ZooKeeperAsyncioPort(loop), loop)
        return ZooKeeperVerbs(self, io, io.signal())

    def count_requests(self, count: Callable[[], None]) -> None:
        """Have every request counted, those that travel together one by one."""
        self._count = count

    def counted(self) -> None:
        """A request goes out; in the connection's thread."""
        self._count()

    def link_shortened(self, session: str, link: Link) -> None:
        """A server grants a session less than those before it; in the connection's thread."""
        self.deliver(Notice(session, session, SHORTENED, proven(link.negotiated), link.attached_at))

    def link_changed(self, session: str, link: Link) -> None:
        """A session's connection was lost, made again, or has ended; in the connection's thread."""
        if not link.connected:
            link.streams.clear()
        # Connected again, or over: whoever stands in line looks for itself. Lost: the heartbeat finds out at once.
        settled = link.connected or link.over is not None
        self.deliver(Notice(session, session, MISSED if settled else GONE))

    def check_up(self) -> list[Finding]:
        """What the ensemble is really set up to."""
        return check_up(self.blocking(), self.place)

    def abandon(self) -> None:
        """This process is a fork: the parent's connections and what waits on them are left alone."""
        _abandoned.append((self.ledger, self.watches, self.streams))
        self._start()

    def close(self) -> None:
        for link in self.ledger.links():
            link.close()
        self._start()


_abandoned: list[object] = []
