"""A port that is closed while it connects leaves nothing open."""

from __future__ import annotations

import asyncio

import redis as redis_py

from holdfast.core.urls import parse
from holdfast.engines.redis.engine import RedisEngine
from holdfast.engines.resp.tasks import RespAsyncioPort
from holdfast.runtime import clock
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
