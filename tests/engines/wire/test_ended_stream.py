"""A connection for tasks that has ended."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.engines.resp.tasks import open_stream
from holdfast.engines.resp.wire import Address, Login, Lost, pack
from holdfast.runtime import clock
from holdfast.verify.servers.redis import RedisServer
from tests.conformance.stage import PATIENCE

NEVER = 1e6


async def test_who_sends_over_a_connection_that_has_ended_is_told_at_once() -> None:
    """And does not wait for an answer that nobody will give until the time is over."""
    with RedisServer() as server:
        until = clock.now() + NEVER
        loop = asyncio.get_running_loop()
        stream = await open_stream(Address("127.0.0.1", server.port), Login(), None, loop, until)
        stream.end("it is over")

        with pytest.raises(Lost, match="it is over"):
            await asyncio.wait_for(stream.send(pack(("PING",)), until), PATIENCE)
