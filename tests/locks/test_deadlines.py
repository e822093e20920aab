"""One deadline limits every request of an operation: an engine that falls silent keeps no caller for longer.

Each operation meets an engine that answers its first requests, and nothing from then on.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from holdfast import HoldfastError, aio
from holdfast.locks.client import GRACE
from holdfast.runtime.asyncio import AsyncioIo
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.redis import MANY_DATABASES, RedisServer

WAIT = 0.3
MARGIN = 1.0
"""For a machine that is busy."""

Operation = Callable[[aio.Client, str], Awaitable[Any]]

# To try is to wait for no time at all.
WITH_WAIT: dict[str, Operation] = {
    "lock": lambda locks, text: locks.lock("k").acquire(wait=WAIT),
    "lock that is held": lambda locks, text: locks.lock("held").acquire(wait=WAIT),
    "lock, try": lambda locks, text: locks.lock(own_key()).try_acquire(),
    "lock_all, try": lambda locks, text: locks.lock_all(own_key(), own_key()).try_acquire(),
    "lock_all that is held, try": lambda locks, text: locks.lock_all(own_key(), own_key(), "held").try_acquire(),
    "lock_all that is held": lambda locks, text: locks.lock_all(own_key(), own_key(), "held").acquire(wait=WAIT),
    "lock_all": lambda locks, text: locks.lock_all("k", "l", "m").acquire(wait=WAIT),
    "semaphore": lambda locks, text: locks.semaphore("k", 2).acquire(wait=WAIT),
    "election": lambda locks, text: locks.election("e").campaign(wait=WAIT),
    "barrier": lambda locks, text: locks.barrier("b", 2).wait(wait=WAIT),
    "barrier of one": lambda locks, text: locks.barrier("b", 1).wait(wait=WAIT),
    "latch": lambda locks, text: locks.latch("n", 2).wait(wait=WAIT),
}
WITHOUT_WAIT: dict[str, Operation] = {
    "adopt": lambda locks, text: locks.adopt(text),
    "join": lambda locks, text: locks.partition("p").join(),
    "update": lambda locks, text: locks.cell("c").update(lambda value: "new"),
    "count_down": lambda locks, text: locks.latch("n", 2).count_down(),
    "append": lambda locks, text: locks.log("l").append(["event"]),
    "inspect": lambda locks, text: locks.inspect("k"),
    "list": lambda locks, text: locks.list(),
    "break_lock": lambda locks, text: locks.break_lock("other"),
    "watch": lambda locks, text: anext(locks.cell("c").watch()),
    "close": lambda locks, text: locks.close(),
    # The result of work that was done is worth more than the wait: it is recorded for as long as the lock is held.
    "once": lambda locks, text: locks.once(own_key()).run(lambda grant: "done", wait=WAIT),
    "once that fails": lambda locks, text: locks.once(own_key()).run(fails, wait=WAIT),
}
BEFORE_WORK = 4
"""Requests of `once` before its work: look, acquire, look again, mark."""


def own_key() -> str:
    """A key that no other call of the same operation uses, before "held" in the order of names."""
    return uuid.uuid4().hex


def fails(grant: aio.Grant) -> None:
    raise RuntimeError("the work failed")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(*MANY_DATABASES) as server:
        yield server


class Silencing:
    """Counts the requests of one client's tasks, and lets nothing get through from a given one on."""

    def __init__(self, locks: aio.Client, proxy: Proxy, after: int) -> None:
        io = locks._core.io
        assert isinstance(io, AsyncioIo)
        self.seen, self._after, self._proxy = 0, after, proxy
        self._io, self._port, io.port = io, io.port, self

    async def call(self, request: Any, until: float) -> Any:
        if self.seen == self._after:
            self._proxy.requests.set("drop")
        self.seen += 1
        return await self._port.call(request, until)

    def stop(self) -> None:
        """Let everything through again."""
        self._proxy.requests.set("pass")
        self._proxy.cut()
        self._io.port = self._port


async def silent_from(server: RedisServer, rival: aio.Client, operation: Operation, after: int, ttl: float) -> float:
    """How long an operation takes whose requests are lost from one on; 0.0 if it made fewer."""
    sent = await rival.lock(f"sent-{after}").acquire()
    text = await sent.hand_over()
    with Proxy(server.host, server.port) as proxy:
        locks = await aio.connect(f"redis://127.0.0.1:{proxy.port}/0", ttl=ttl)
        async with locks.lock(f"warm-{after}"):
            pass
        silencing = Silencing(locks, proxy, after)
        began = time.monotonic()
        try:
            given = await operation(locks, text)
        except (HoldfastError, RuntimeError):
            given = None
        took = time.monotonic() - began
        silencing.stop()
        for end in *([given.release] if isinstance(given, aio.Grant | aio.Grants) else []), locks.close, sent.release:
            with suppress(HoldfastError):
                await end()
    return took if silencing.seen > after else 0.0


async def longest(server: RedisServer, operation: Operation, ttl: float, requests: int = 9) -> float:
    """The longest that it takes, whichever of its first requests is the first that is lost."""
    async with aio.connect(server.url, ttl=30.0) as rival, rival.lock("held"):
        took = await asyncio.gather(*(silent_from(server, rival, operation, after, ttl) for after in range(requests)))
    assert took[0], "it made no request"
    return max(took)


@pytest.mark.parametrize("operation", WITH_WAIT)
async def test_the_answer_comes_within_the_wait_and_a_second(server: RedisServer, operation: str) -> None:
    # Longer than the wait: a request by itself may take as long as the ttl.
    assert await longest(server, WITH_WAIT[operation], ttl=10.0) < WAIT + GRACE + MARGIN


@pytest.mark.parametrize("operation", ["once", "once that fails"])
async def test_the_requests_of_once_before_its_work_end_with_the_wait(server: RedisServer, operation: str) -> None:
    took = await longest(server, WITHOUT_WAIT[operation], ttl=10.0, requests=BEFORE_WORK)

    assert took < WAIT + GRACE + MARGIN


@pytest.mark.parametrize("operation", WITHOUT_WAIT)
async def test_what_has_no_wait_takes_no_longer_than_one_request_may(server: RedisServer, operation: str) -> None:
    assert await longest(server, WITHOUT_WAIT[operation], ttl=2.0) < 2.0 + GRACE + MARGIN
