"""A port that is closed while it connects leaves nothing open."""

from __future__ import annotations

import asyncio

import pytest
import redis as redis_py

from holdfast import EngineUnavailable, aio
from holdfast.core.urls import parse
from holdfast.engines.redis.engine import RedisEngine
from holdfast.engines.resp.tasks import RespAsyncioPort
from holdfast.runtime import clock
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.redis import RedisServer
from tests.faults.children import eventually


async def connect_and_close(port: RespAsyncioPort, turn: int) -> bool:
    """Close it in this turn of the loop after it began to connect; whether it was not done before."""
    connecting = asyncio.create_task(port._connected(clock.now() + 10.0))
    for _ in range(turn):
        await asyncio.sleep(0)
    early = not connecting.done()
    port.close()
    await asyncio.gather(connecting, return_exceptions=True)
    return early


async def test_a_connection_that_is_made_in_the_moment_of_the_close_is_closed(url: str, redis: redis_py.Redis) -> None:
    """In whichever turn of the loop that moment is."""
    before = len(redis.client_list())
    engine = RedisEngine(parse(url), "test")
    loop = asyncio.get_running_loop()
    early = True
    turn = 0
    while early:
        turn += 1
        port = RespAsyncioPort("test", engine.route, loop)
        early = await connect_and_close(port, turn)
        assert port._stream is None or port._stream.problem is not None, f"open after a close in turn {turn}"
    engine.close()

    assert turn > 3
    await asyncio.to_thread(eventually, lambda: len(redis.client_list()) == before, "a connection was left open")


async def test_who_waits_for_a_connection_while_the_client_is_closed_is_told_so(shared_server: RedisServer) -> None:
    """And not cancelled: nobody has done that."""
    with Proxy("127.0.0.1", shared_server.port) as proxy:
        proxy.replies.set("stall")
        locks = await aio.connect(f"redis://127.0.0.1:{proxy.port}/1")
        looking = asyncio.create_task(locks.inspect("k"))
        await asyncio.to_thread(eventually, lambda: proxy.accepted == 1, "nobody has connected")
        await locks.close()

        with pytest.raises(EngineUnavailable, match="the client was closed") as caught:
            await looking
        assert caught.value.outcome == "not done"
