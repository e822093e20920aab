"""Plain steps of concurrent tasks are sent as one call of a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis as redis_py

from holdfast import EngineUnavailable, aio
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.redis import RedisServer
from tests.conformance.stage import PATIENCE, eventually
from tests.engines.wire.together import TASKS, give, names, take, take_one


@pytest.fixture
async def locks(url: str) -> AsyncIterator[aio.Client]:
    async with aio.connect(url) as client:
        await (await client.lock("first").acquire()).release()
        yield client


def calls(server: redis_py.Redis) -> int:
    """How often a script was called."""
    return int(server.info("commandstats")["cmdstat_evalsha"]["calls"])


async def test_pairs_of_many_tasks_are_two_requests(server: RedisServer) -> None:
    with redis_py.Redis(port=server.port) as operator:
        async with aio.connect(f"redis://127.0.0.1:{server.port}/0") as client:
            await give(await take(client, names()))
            before = calls(operator)
            for _ in range(10):
                await give(await take(client, names()))

            # Heartbeats come in between.
            assert calls(operator) - before < 2 * 10 * 2


async def test_where_many_want_one_lock_a_grant_takes_no_more_than_its_two_requests(server: RedisServer) -> None:
    """To ask together first and then by itself would make three."""
    rounds = 20

    async def take_turns(client: aio.Client) -> None:
        for _ in range(rounds):
            await (await client.lock("same").acquire()).release()

    with redis_py.Redis(port=server.port) as operator:
        async with aio.connect(f"redis://127.0.0.1:{server.port}/0") as client:
            await (await client.lock("first").acquire()).release()
            before = calls(operator)
            await asyncio.wait_for(asyncio.gather(*(take_turns(client) for _ in range(TASKS))), PATIENCE)

            assert calls(operator) - before < 2.5 * TASKS * rounds


async def test_they_leave_nothing_behind(locks: aio.Client, redis: redis_py.Redis) -> None:
    before = set(redis.keys())
    await give(await take(locks, names()))

    assert set(redis.keys()) == before
    (session,) = redis.keys("*session:*")
    fields: list[Any] = list(redis.hkeys(session))
    assert not [field for field in fields if field.startswith(b"c:")]


async def test_a_server_that_forgot_the_script_is_sent_it_again(locks: aio.Client, redis: redis_py.Redis) -> None:
    redis.script_flush()
    grants = await take(locks, names())
    redis.script_flush()
    await give(grants)

    assert await take_one(locks, "k0")


async def test_a_request_that_is_begun_while_the_clock_is_looked_at_is_given_up_in_time(url: str) -> None:
    """Between two turns of the loop it is in no list yet of what has to be answered."""
    host, port, database = url.removeprefix("redis://").replace("/", ":").split(":")
    with Proxy(host, int(port)) as proxy:
        async with aio.connect(f"redis://127.0.0.1:{proxy.port}/{database}") as client:
            grant = await client.lock("k").acquire()
            client._core.call_limit = 0.5
            stream: Any = client._core.verbs.io.port._stream  # type: ignore[attr-defined]
            # All that was asked before is answered. The last look at the clock comes just after the next request.
            await eventually(lambda: not stream._timers)
            proxy.replies.set("stall")
            stream._ticking = True
            release = asyncio.create_task(grant.release())
            asyncio.get_running_loop().call_soon(stream._tick)

            with pytest.raises(EngineUnavailable):
                await asyncio.wait_for(release, PATIENCE)
            proxy.heal()
