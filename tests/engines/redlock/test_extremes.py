"""Nodes that are full, whose clocks were set back, or that have no token left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis

from holdfast import EngineUnavailable
from holdfast.model import MAX_TOKEN
from tests.conformance.apis import Front
from tests.conformance.stage import Stage
from tests.engines.redlock.conftest import Nodes, tried

START = "holdfast:1:{holdfast}:"
HOUR_MS = 3_600_000


@pytest.fixture
def operators(nodes: Nodes) -> Iterator[list[redis.Redis]]:
    with ExitStack() as stack:
        yield [stack.enter_context(redis.Redis(port=server.port, db=nodes.database)) for server in nodes.servers]


async def test_a_dead_holder_does_not_keep_its_lock_for_as_long_as_clocks_were_set_back(
    stage: Stage, locks: Front, operators: list[redis.Redis]
) -> None:
    dead = await stage.client(ttl=1.0)
    held = await dead.lock("k").acquire()
    stage.silence(dead)
    for operator in operators:
        operator.pexpire(f"{START}lock:lock:k", HOUR_MS)

    assert (await locks.lock("k").acquire(wait=20.0)).token > held.token


async def test_a_token_is_given_out_once_and_none_when_all_are_used_up(
    locks: Front, operators: list[redis.Redis]
) -> None:
    for operator in operators:
        operator.set(f"{START}last", MAX_TOKEN - 1)
    last = await tried(locks.lock("last"))
    assert last.token == MAX_TOKEN
    with pytest.raises(EngineUnavailable, match="every token under 2\\^53 has been given out") as error:
        await locks.lock("k").acquire(wait=10.0)

    assert error.value.outcome == "not done"
    assert not any(operator.exists(f"{START}lock:lock:k") for operator in operators)
    await last.release()


async def test_nodes_that_are_full_keep_what_is_held_and_take_it_back(
    locks: Front, nodes: Nodes, operators: list[redis.Redis]
) -> None:
    held = await locks.lock("k").acquire()
    for operator in operators:
        operator.config_set("maxmemory", "1")
    try:
        await held.renew()
        with pytest.raises(EngineUnavailable):
            await locks.lock("other").acquire(wait=1.0)
        await held.release()
        assert nodes.holders("k") == [None] * 5
    finally:
        for operator in operators:
            operator.config_set("maxmemory", "0")
