"""What locks leave behind in Redis, and what holding them costs."""

from __future__ import annotations

import asyncio
import os
import time

import redis as redis_py

import holdfast
from holdfast import aio
from holdfast.bench.counting import Counter
from holdfast.verify.servers.redis import RedisServer
from tests.conformance.stage import eventually

START = "holdfast:1:{holdfast}:"


def keys(redis: redis_py.Redis) -> set[str]:
    return {key.decode().removeprefix(START) for key in redis.scan_iter(count=1000)}


NAMES = int(os.environ.get("HOLDFAST_NAMES", "3000"))
"""How many one-off names are used: a million under `make marathon`."""
TOGETHER = 100
ROOM = 500_000
"""Bytes by which a server's memory varies whatever is kept: buffers, and tables that grow and shrink."""


async def use_once(locks: aio.Client, first: int, last: int) -> None:
    """Take and give back locks that nobody names again; half of them are waited for."""

    async def use(number: int) -> None:
        lock = locks.lock(f"invoice:{number}")
        async with lock:
            waiting = asyncio.ensure_future(lock.acquire()) if number % 2 else None
            await asyncio.sleep(0)
        if waiting is not None:
            await (await waiting).release()

    for start in range(first, last, TOGETHER):
        await asyncio.gather(*(use(number) for number in range(start, min(start + TOGETHER, last))))


async def test_names_that_were_used_once_leave_nothing(server: RedisServer) -> None:
    with redis_py.Redis.from_url(server.url) as operator:
        async with aio.connect(server.url) as locks:
            await use_once(locks, 0, 1000)
            before, memory = keys(operator), operator.info("memory")["used_memory"]
            await use_once(locks, 1000, 1000 + NAMES)

            assert keys(operator) == before
            assert operator.info("memory")["used_memory"] < memory + ROOM
        assert keys(operator) == {"last"}


def test_everything_but_the_counter_ends_by_itself_when_nobody_comes_back(url: str, redis: redis_py.Redis) -> None:
    """As after a crash of every client: each key has an expiry, so nothing depends on somebody clearing up."""
    with holdfast.connect(url, ttl=2.0) as locks:
        with (
            locks.lock("a", max_hold=5.0),
            locks.rwlock("b").read(),
            locks.semaphore("c", limit=2),
            holdfast.connect(url, ttl=2.0) as rival,
        ):
            watching = rival.watch()
            locks.latch("kept", count=2).count_down()
            assert rival.lock("a").try_acquire() is None
            immortal = {key for key in keys(redis) if redis.pttl(START + key) < 0}
            watching.close()

    assert immortal == {"last"}


def test_a_heartbeat_of_ten_thousand_locks_is_eleven_requests_at_most(url: str) -> None:
    with holdfast.connect(url, ttl=30.0) as locks:
        held = [locks.lock(f"k{number}").acquire() for number in range(10_000)]
        counter = Counter()
        counter.around(locks._core.verbs)
        held[0].renew()

        assert counter.requests <= 11
        assert all(grant.valid for grant in held)


def test_the_keys_of_a_lock_outlive_the_session_that_keeps_it(url: str, redis: redis_py.Redis) -> None:
    """A short ttl beside a long one must not take the long one's lock away."""
    with holdfast.connect(url, ttl=600.0) as patient, holdfast.connect(url, ttl=1.0) as brief:
        with patient.rwlock("k").read(), brief.rwlock("k").read() as short:
            short.renew()
            assert redis.pttl(START + "lock:lock:k") > 600_000


async def test_a_client_that_died_leaves_nothing_once_somebody_looks(url: str, redis: redis_py.Redis) -> None:
    dead = holdfast.connect(url, ttl=0.3)
    grant = dead.lock("k").acquire()
    assert dead._core.keeper is not None
    dead._core.keeper.stop()
    with holdfast.connect(url, ttl=1.0) as living:
        held = living.lock("other").acquire()
        started = time.monotonic()
        await eventually(lambda: "lock:lock:k" not in keys(redis))

        assert time.monotonic() - started < 3.0
        assert not grant.valid
        held.release()
    dead.close()
