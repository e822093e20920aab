"""One task connects for all that want to: what becomes of those who have more time than it."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress

import pytest
import redis as redis_py

from holdfast.core.urls import parse
from holdfast.engines.redis.engine import RedisEngine
from holdfast.engines.resp.tasks import RespAsyncioPort
from holdfast.engines.resp.wire import Lost
from holdfast.runtime import clock
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.redis import RedisServer
from tests.conformance.apis import Api
from tests.conformance.stage import Stage, eventually
from tests.engines.redis.conftest import SUBJECT


async def test_who_has_more_time_to_connect_is_not_failed_by_who_has_less(server: RedisServer) -> None:
    engine = RedisEngine(parse(f"redis://127.0.0.1:{server.port}/1"), "test")
    port = RespAsyncioPort("test", engine.route, asyncio.get_running_loop())
    with redis_py.Redis(port=server.port) as operator:
        # The choice of a database has to wait too.
        operator.client_pause(1500)
        hasty = asyncio.create_task(port._connected(clock.now() + 0.3))
        patient = asyncio.create_task(port._connected(clock.now() + 30.0))

        with pytest.raises(Lost):
            await hasty
        stream = await patient

    assert stream.problem is None
    port.close()


async def test_a_connection_that_fails_after_its_callers_have_gone_prints_nothing(server: RedisServer) -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))

    async def give_up() -> None:
        engine = RedisEngine(parse(f"redis://127.0.0.1:{server.port}/1"), "test")
        port = RespAsyncioPort("test", engine.route, asyncio.get_running_loop())
        with suppress(TimeoutError):
            await asyncio.wait_for(port._connected(clock.now() + 0.3), 0.05)
        await eventually(lambda: port._connecting is None)
        port.close()

    with redis_py.Redis(port=server.port) as operator:
        operator.client_pause(1500)
        await give_up()
    gc.collect()

    assert told == []


@pytest.mark.parametrize("after", [0, 3])
async def test_a_connection_that_is_cut_while_it_logs_in_is_made_again(
    api: Api, shared_server: RedisServer, database: int, after: int
) -> None:
    with Proxy("127.0.0.1", shared_server.port) as proxy:
        stage = Stage(SUBJECT, api, f"redis://127.0.0.1:{proxy.port}/{database}")
        locks = await stage.client(ttl=60.0)
        proxy.replies.set("cut", after=after)

        assert (await locks.lock("k").acquire(wait=10.0)).valid
        await stage.end()
