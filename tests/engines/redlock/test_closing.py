"""A client that is closed while a round is under way."""

from __future__ import annotations

import asyncio

import redis

from holdfast import aio
from tests.conformance.stage import eventually
from tests.engines.redlock.conftest import Nodes


def clients(nodes: Nodes) -> int:
    """How many connections all nodes have, but for the one that asks."""
    found = 0
    for server in nodes.servers:
        with redis.Redis(port=server.port) as operator:
            found += len(operator.client_list()) - 1
    return found


async def test_neither_a_connection_nor_a_lock_is_left_in_whichever_turn_it_is_closed(nodes: Nodes) -> None:
    before = clients(nodes)
    for turns in range(1, 30):
        locks = await aio.connect(nodes.url)
        await (await locks.lock("first").acquire()).release()
        tasks = [asyncio.create_task(locks.lock(f"k{number}").acquire()) for number in range(2)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await locks.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    await eventually(lambda: clients(nodes) == before)
    assert [nodes.holders(f"k{number}") for number in range(2)] == [[None] * 5] * 2
