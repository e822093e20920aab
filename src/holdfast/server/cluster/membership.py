"""One server's place in the cluster: a lease, and a record that hangs on it.

Who leads does so by the same lease. Its deadline is on this server's own clock, and always comes first: it counts
from before the renewal was sent that a majority of etcd has confirmed.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.core.deadline import deadline
from holdfast.engines.etcd import steps
from holdfast.engines.etcd.wire import LeaseExists, LeaseGone
from holdfast.errors import EngineUnavailable
from holdfast.runtime import clock
from holdfast.server.cluster.keys import Keys
from holdfast.server.cluster.wire import WITHIN, Etcd

Prove = Callable[[int, float, float], Awaitable[int]]
"""Takes a lease, its length and a deadline, and goes through a majority of etcd; the term of etcd's leader."""


@dataclass(frozen=True, slots=True)
class Member:
    """Who a server says it is."""

    id: str
    advertise: str
    """Where clients reach it."""
    http: str
    version: str
    started: float
    """Seconds since the epoch."""

    def packed(self, **more: Any) -> bytes:
        return json.dumps(asdict(self) | more).encode()


def unpacked(value: bytes) -> dict[str, Any]:
    """What a server has written about itself; a later version may say more."""
    found: dict[str, Any] = json.loads(value)
    return found


class Membership:
    """Begins, renews and ends."""

    def __init__(self, etcd: Etcd, keys: Keys, member: Member, ttl: int) -> None:
        self.etcd, self.keys, self.member, self.ttl = etcd, keys, member, ttl
        self.lease = 0
        """0: there is none."""
        self.granted = float(ttl)
        self.deadline = 0.0
        self._former = 0
        """The lease that was had last: what hangs on it is in the way until it ends."""

    @property
    def alive(self) -> bool:
        """Whether etcd cannot have ended the lease yet, on our own clock."""
        return clock.now() < self.deadline

    async def begin(self) -> None:
        """A new lease, and the record under it."""
        if self._former:
            with suppress(EngineUnavailable):  # then it runs out by itself
                await self.etcd.revoke(self._former, clock.now() + 1.0)
        lease, sent = self.etcd.new_lease(), clock.now()
        try:
            self.granted = float(await self.etcd.grant(lease, self.ttl, sent + WITHIN))
        except LeaseExists:
            # An earlier try of the same call: nobody else can have chosen this number.
            self.granted = float((await self.etcd.keep_alive(lease, sent + WITHIN)).message.TTL)
        record = steps.put(self.keys.member(self.member.id), self.member.packed(), lease)
        await self.etcd.decide([], [record], until=clock.now() + WITHIN)
        self.lease = self._former = lease
        self.deadline = deadline(sent, self.granted)

    def lose(self) -> None:
        """The lease is over, or may be."""
        self.lease, self.deadline = 0, 0.0

    async def renew(self, prove: Prove | None = None) -> None:
        """Keep the lease. LeaseGone if it is over.

        An etcd leader that was cut off does not know it yet, and goes on renewing leases that its successor lets run
        out. What follows goes through a majority: if it is of the same term, the renewal counts. By default
        that is a look at our record.
        """
        lease = self.lease
        while True:
            sent = clock.now()
            until = sent + min(WITHIN, self.granted / 3)
            kept = await self.etcd.keep_alive(lease, until)
            ttl = float(kept.message.TTL)
            term = await (prove or self._look)(lease, ttl, until)
            if self.lease != lease:
                raise LeaseGone
            if term == kept.term:
                self.deadline = max(self.deadline, deadline(sent, ttl))
                return

    async def _look(self, lease: int, _: float, until: float) -> int:
        seen = await self.etcd.call(steps.look(self.keys.member(self.member.id)), until)
        if [kv.lease for kv in seen.message.kvs] != [lease]:
            raise LeaseGone
        return seen.term

    async def end(self) -> None:
        """Let the lease go, and with it the record and the leadership."""
        lease = self.lease
        self.lose()
        if lease:
            await self.etcd.revoke(lease, clock.now() + 1.0)
