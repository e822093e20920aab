"""`holdfast://host:port`: locks in the lock server.

Two connections a client: one for all claims, which threads or tasks share, and the keeper's,
which beats, withdraws and listens. Whichever is lost is made again, and resumes the session.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from holdfast.core.table.commands import Notice
from holdfast.core.urls import Url
from holdfast.engines.checkup import Finding
from holdfast.engines.engine import Deliver, nobody
from holdfast.engines.holdfast.bell import Bell
from holdfast.engines.holdfast.blocking import BlockingWire, PortIo
from holdfast.engines.holdfast.checkup import check_up
from holdfast.engines.holdfast.desk import Desk
from holdfast.engines.holdfast.line import Line
from holdfast.engines.holdfast.port import Carry, Port
from holdfast.engines.holdfast.route import OPTIONS, make_route
from holdfast.engines.holdfast.tasks import TaskWire, from_elsewhere
from holdfast.engines.table_verbs import TableVerbs
from holdfast.model import Guarantees
from holdfast.runtime.asyncio import AsyncioIo

ONE_NODE = Guarantees(
    consensus=False,
    durable=True,
    leased=True,
    fair=True,
    notified=True,
    deadlock_detection=True,
    fencing="strict",
    clock="monotonic",
    modes=frozenset({"exclusive", "shared", "semaphore", "subtree"}),
    events=frozenset({"granted", "queued", "released", "expired", "broken", "deadlock"}),
    lost_node="Nothing is granted or renewed until the server is back; it then knows all that it had answered, and "
    "every session gets a full ttl of grace.",
    summary="Exclusion rests on one lock server and its disk: nothing is answered before it is written.",
)


TAKEOVER = 10.0
"""Seconds in which one of several servers has taken over from another, with the shortest lease that they may have and
something to spare: whoever asks meanwhile waits."""


class HoldfastEngine:
    """One client's way to the lock server."""

    schemes = ("holdfast",)
    options = OPTIONS
    shortest_ttl = 0.1

    def __init__(self, url: Url, namespace: str) -> None:
        self.address = str(url)
        self.deliver: Deliver = nobody
        self.route = make_route(url)
        self.guarantees = guarantees(self.route.replicated, self.route.durable)
        self.patience = TAKEOVER if self.route.replicated else 0.0
        self._start()

    def _start(self) -> None:
        self.desk = Desk(self.address, self.route, self._deliver)
        self.desk.leave = self._leave
        self._ports: list[Port] = []
        self._bells: list[Bell] = []
        self._tasks = False
        self._claims: Carry | None = None
        """By which claims are sent, from a thread that may block."""

    def _leave(self) -> None:
        for port in self._ports:
            port.leave()

    def _deliver(self, notice: Notice) -> None:
        self.deliver(notice)

    def blocking(self) -> TableVerbs:
        """The first are the callers'; the second, or the first beside a loop, are the keeper's."""
        if self._claims is None:
            port = Port(self.desk, BlockingWire(self.desk), ("QUIET",))
            self._claims = port.call
        else:
            # Pushes go where somebody always listens: to the loop, or else to the keeper.
            role = ("SIDE", "QUIET") if self._tasks else ("SIDE",)
            port = Port(self.desk, BlockingWire(self.desk), role, self._claims)
        self._ports.append(port)
        bell = Bell(port)
        self._bells.append(bell)
        return TableVerbs(PortIo(port), bell)

    def asyncio(self, loop: asyncio.AbstractEventLoop) -> TableVerbs:
        self._tasks = True
        port = Port(self.desk, TaskWire(self.desk, loop), ())
        self._claims = from_elsewhere(port, loop)
        self._ports.append(port)
        io = AsyncioIo(port, loop)
        return TableVerbs(io, io.signal())

    def check_up(self) -> list[Finding]:
        """What the server really is."""
        return check_up(self.address, self.route)

    def abandon(self) -> None:
        """Closing a socket here says nothing: the parent has it too. A loop's connection is left alone altogether."""
        for port in self._ports:
            if isinstance(port.link, Line):
                port.link.abandon()
        _abandoned.append((self._ports, self._bells))
        self._start()

    def close(self) -> None:
        for port in self._ports:
            port.close()
        for bell in self._bells:
            bell.close()
        self._start()


def guarantees(replicated: bool, durable: bool) -> Guarantees:
    """What such servers promise. The client refuses a server that is not what its URL says."""
    found = ONE_NODE
    if replicated:
        found = replace(
            found,
            consensus=True,
            lost_node="Another server takes over with all that was answered; nothing is granted or renewed meanwhile.",
            summary="Exclusion rests on etcd's quorum, in which the servers keep their state.",
        )
    if not durable:
        found = replace(
            found,
            durable=False,
            lost_node="Everything is lost with the server: a lock may be given again, with a higher token.",
            summary="Exclusion rests on one lock server that keeps nothing on disk, for as long as it runs.",
        )
    return found


_abandoned: list[object] = []
