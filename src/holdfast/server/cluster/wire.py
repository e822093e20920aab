"""Calls to etcd, for the servers of a cluster: awaited in the loop, or blocking where nothing else may happen."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from holdfast.engines.etcd import steps
from holdfast.engines.etcd.address import Address
from holdfast.engines.etcd.batch import EtcdAsyncioPort
from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.watcher import Watcher
from holdfast.engines.etcd.wire import (
    COMPACT,
    LEASE_GRANT,
    LEASE_KEEP_ALIVE,
    LEASE_REVOKE,
    Answer,
    EtcdPort,
    LeaseGone,
    Request,
    Wire,
)
from holdfast.runtime import clock

Call = Callable[[Request, float], Awaitable[Answer]]
WITHIN = 5.0
"""Seconds for a call that nobody's lease depends on: long enough for etcd to elect a leader."""
PAGE = 64
"""How many values are read at once, unless they are large: a call has a second."""


class Etcd:
    """One server's way to etcd."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.wire = Wire(address)
        self._loop_port: EtcdAsyncioPort | None = None
        self._port = EtcdPort(self.wire)

    async def call(self, request: Request, until: float | None = None) -> Answer:
        """Send a request; EngineUnavailable if it is not answered in time."""
        if self._loop_port is None:
            self._loop_port = EtcdAsyncioPort(self.wire, asyncio.get_running_loop())
        return await self._loop_port.call(request, clock.now() + WITHIN if until is None else until)

    async def call_blocking(self, request: Request, until: float | None = None) -> Answer:
        """The same for a thread that has to wait: it never suspends."""
        return self._port.call(request, clock.now() + WITHIN if until is None else until)

    async def decide(
        self, compare: Sequence[Any], then: Sequence[Any], otherwise: Sequence[Any] = (), until: float | None = None
    ) -> Answer:
        """One transaction; it writes, at least in one case."""
        return await self.call(steps.step(compare, then, otherwise), until)

    def watcher(self) -> Watcher:
        """What hears of written keys without asking."""
        return Watcher(self.wire)

    def new_lease(self) -> int:
        """A number that nobody else chooses."""
        return secrets.randbits(62) + 1

    async def grant(self, lease: int, ttl: int, until: float) -> int:
        """Begin a lease; its length in seconds, which etcd may make longer."""
        asked = message("LeaseGrantRequest")(ID=lease, TTL=ttl)
        granted: int = (await self.call(Request(LEASE_GRANT, asked), until)).message.TTL
        return granted

    async def keep_alive(self, lease: int, until: float) -> Answer:
        """Renew a lease. LeaseGone if there is none."""
        answer = await self.call(Request(LEASE_KEEP_ALIVE, message("LeaseKeepAliveRequest")(ID=lease)), until)
        if answer.message.TTL <= 0:
            raise LeaseGone
        return answer

    async def revoke(self, lease: int, until: float) -> None:
        """End a lease, and all that hangs on it."""
        try:
            await self.call(Request(LEASE_REVOKE, message("LeaseRevokeRequest")(ID=lease)), until)
        except LeaseGone:
            return

    async def compact(self, revision: int) -> None:
        """Let etcd forget what was before a revision."""
        await self.call(Request(COMPACT, message("CompactionRequest")(revision=revision)))

    def close(self) -> None:
        """Close every connection."""
        if self._loop_port is not None:
            self._loop_port.close()
        self.wire.close()


async def read(call: Call, key: bytes) -> tuple[Any | None, int]:
    """A key, None if there is none, and the revision of the look."""
    answer = await call(steps.look(key), clock.now() + WITHIN)
    found = answer.message.kvs
    return (found[0] if found else None), answer.revision


async def read_all(call: Call, start: bytes, end: bytes, revision: int = 0, page: int = PAGE) -> AsyncIterator[Any]:
    """Every key of a range, in order, as of a revision."""
    more = True
    while more:
        answer = await call(steps.look(start, end, limit=page, revision=revision), clock.now() + WITHIN)
        for kv in answer.message.kvs:
            yield kv
            start = kv.key + b"\0"
        more = answer.message.more
