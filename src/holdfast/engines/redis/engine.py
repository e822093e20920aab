"""`redis://`: locks in one Redis (or Valkey), one atomic script a step.

Every key carries the hash tag of its namespace, so that a cluster keeps them in one slot, and
an expiry, so that nothing is left of the dead. Whether a claim lives is decided by its
session's expiry on the server's clock alone.
"""

from __future__ import annotations

import asyncio

from holdfast.core.table.commands import GRANTED, MISSED, Notice
from holdfast.core.urls import Url
from holdfast.engines.checkup import Finding
from holdfast.engines.engine import Deliver, nobody
from holdfast.engines.redis.bell import Bell
from holdfast.engines.redis.checkup import check_up
from holdfast.engines.redis.ledger import Ledger
from holdfast.engines.redis.notices import Notices
from holdfast.engines.redis.route import OPTIONS, make_route
from holdfast.engines.redis.verbs import RedisVerbs
from holdfast.engines.resp.blocking import RespPort
from holdfast.engines.resp.tasks import RespAsyncioPort
from holdfast.model import Granted, Guarantees
from holdfast.runtime.asyncio import AsyncioIo
from holdfast.runtime.blocking import BlockingIo

GUARANTEES = Guarantees(
    consensus=False,
    durable=False,
    leased=True,
    fair=True,
    notified=True,
    deadlock_detection=True,
    fencing="clock",
    clock="wall",
    modes=frozenset({"exclusive", "shared", "semaphore"}),
    events=frozenset({"granted", "queued", "released", "expired", "broken", "deadlock"}),
    lost_node="What Redis had not written or replicated is lost with it: a lock may be given twice, each time with a "
    "higher token as long as the server's clock is not behind and no two primaries grant at the same time.",
    summary="Efficiency, not correctness, unless fenced: exclusion rests on one Redis, its wall clock and its "
    "persistence.",
)


class RedisEngine:
    """One client's way to one Redis."""

    schemes = ("redis", "rediss", "redis+sentinel", "redis+cluster")
    options = OPTIONS
    guarantees = GUARANTEES
    shortest_ttl = 0.1

    def __init__(self, url: Url, namespace: str) -> None:
        self.address, self.namespace = str(url), namespace
        self.prefix = f"holdfast:1:{{{namespace}}}:"
        self.deliver: Deliver = nobody
        self.route = make_route(url)
        self.ledger = Ledger()
        self.notices = Notices(self.address)
        self.keep_ms = "0"
        """For how long a key may outlive its last sign of life, by the session's ttl: `keep_for` of the scripts."""
        self._start()

    def _start(self) -> None:
        self._ports: list[RespPort] = []
        self._loop_ports: list[RespAsyncioPort] = []
        self._bells: list[Bell] = []

    def blocking(self) -> RedisVerbs:
        port = RespPort(self.address, self.route)
        bell = Bell(self.route, self.prefix, self._hear, self._subscribed_again)
        self._ports.append(port)
        self._bells.append(bell)
        return RedisVerbs(self, BlockingIo(port), bell)

    def asyncio(self, loop: asyncio.AbstractEventLoop) -> RedisVerbs:
        port = RespAsyncioPort(self.address, self.route, loop)
        self._loop_ports.append(port)
        io = AsyncioIo(port, loop)
        return RedisVerbs(self, io, io.signal())

    def _hear(self, message: bytes) -> None:
        """Hand a notice on. A grant that comes with all there is to know about it is kept for the waiter's look."""
        read = self.notices.read(message)
        if read is None:
            return
        notice, granted = read
        if granted is not None:
            self.ledger.hand(notice.subject, granted)
        self.deliver(notice)

    def hand_on(self, news: bytes) -> None:
        """A release has made another claim of this client the holder, and only its answer tells."""
        claim_id, token = news.decode().split(" ")
        self.ledger.hand(claim_id, Granted(int(token)))
        self.deliver(Notice("", claim_id, GRANTED))

    def _subscribed_again(self) -> None:
        """Connections were cut. Redis may be another one now, or have lost data: a heartbeat finds that out at once."""
        self.missed()
        self.deliver(Notice("", "", MISSED))

    def missed(self) -> None:
        """Something may not have been heard: whoever stands in line looks for itself."""
        for claim_id in self.ledger.waiting():
            self.deliver(Notice("", claim_id, GRANTED))

    def check_up(self) -> list[Finding]:
        """What the deployment is really set up to."""
        return check_up(self.address, self.route)

    def abandon(self) -> None:
        """Closing a socket here says nothing: the parent has it too. A loop's connection is left alone altogether."""
        for port in self._ports:
            port.abandon()
        _abandoned.append((self._loop_ports, self._bells))
        self.ledger, self.notices = Ledger(), Notices(self.address)
        self._start()

    def close(self) -> None:
        for port in self._ports:
            port.close()
        for loop_port in self._loop_ports:
            loop_port.close()
        for bell in self._bells:
            bell.close()
        self._start()


_abandoned: list[object] = []
