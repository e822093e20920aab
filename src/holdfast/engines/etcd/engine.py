"""`etcd://h1,h2,h3`: locks in an etcd cluster, one lease a session, one transaction a step.

What is held hangs on the session's lease and ends with it. Nothing is done on a timer of our own:
a waiter watches the one before it, and is the next holder when a transaction says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.core.table.commands import Notice
from holdfast.core.urls import Url
from holdfast.engines.checkup import Finding
from holdfast.engines.engine import Deliver, nobody
from holdfast.engines.etcd.address import OPTIONS, parse_address
from holdfast.engines.etcd.batch import EtcdAsyncioPort
from holdfast.engines.etcd.checkup import check_up
from holdfast.engines.etcd.events import Subscriptions
from holdfast.engines.etcd.keys import Keys
from holdfast.engines.etcd.session import Shared
from holdfast.engines.etcd.verbs import EtcdVerbs
from holdfast.engines.etcd.watcher import Watcher
from holdfast.engines.etcd.wire import EtcdPort, Wire
from holdfast.model import Guarantees
from holdfast.runtime.asyncio import AsyncioIo
from holdfast.runtime.blocking import BlockingIo, ThreadSignal

GUARANTEES = Guarantees(
    consensus=True,
    durable=True,
    leased=True,
    fair=True,
    notified=True,
    deadlock_detection=True,
    fencing="strict",
    clock="monotonic",
    modes=frozenset({"exclusive", "shared", "semaphore"}),
    events=frozenset({"granted", "queued", "released", "expired", "broken", "deadlock"}),
    lost_node="As long as a majority of the members can speak to each other nothing is lost; a minority grants "
    "nothing, and after a new leader every lease starts anew at full length.",
    summary="Correctness: every grant is a transaction that a majority of the cluster has written, and tokens are "
    "its revisions.",
)


class EtcdEngine:
    """One client's way to one cluster."""

    schemes = ("etcd",)
    options = OPTIONS
    guarantees = GUARANTEES
    shortest_ttl = 0.1
    """Whole seconds are counted by etcd, and no fewer than its election takes: a shorter ttl is rounded up."""

    def __init__(self, url: Url, namespace: str) -> None:
        self.place = parse_address(url)
        self.address, self.namespace = self.place.shown, namespace
        self.deliver: Deliver = nobody
        self._started = False

    def _start(self) -> None:
        """Begin, or begin anew in a fork or after a close."""
        if self._started:
            return
        self._started = True
        self._loop_ports: list[EtcdAsyncioPort] = []
        self.wire = Wire(self.place)
        self.watcher = Watcher(self.wire)
        self.wire.moved = self.watcher.restart
        self.shared = Shared(self.address, Keys(self.namespace), self.watcher)
        self.shared.deliver = self._deliver
        self.subscriptions = Subscriptions(self.shared)

    def _deliver(self, notice: Notice) -> None:
        self.deliver(notice)

    def blocking(self) -> EtcdVerbs:
        self._start()
        return EtcdVerbs(self.shared, BlockingIo(EtcdPort(self.wire)), ThreadSignal(), self.subscriptions)

    def asyncio(self, loop: asyncio.AbstractEventLoop) -> EtcdVerbs:
        self._start()
        port = EtcdAsyncioPort(self.wire, loop)
        self._loop_ports.append(port)
        io = AsyncioIo(port, loop)
        return EtcdVerbs(self.shared, io, io.signal(), self.subscriptions)

    def check_up(self) -> list[Finding]:
        """What `doctor` finds here."""
        return check_up(self.place)

    def count_requests(self, count: Callable[[], None]) -> None:
        """Call this for every request that is sent from now on, those on the watch stream included."""
        self.wire.counted = lambda method: count()

    def abandon(self) -> None:
        """Closing a socket here says nothing: the parent has it too. A loop's connections are left alone altogether."""
        if self._started:
            self.wire.close()
            self.watcher.abandon()
            _abandoned.append(self._loop_ports)
            self._started = False

    def close(self) -> None:
        if self._started:
            self.watcher.stop()
            for port in self._loop_ports:
                port.close()
            self.wire.close()
            self._started = False


_abandoned: list[object] = []
