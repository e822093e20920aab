"""The model of a Redlock node answers like a real server, script by script."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from holdfast.engines.redis.verbs import script
from holdfast.engines.resp.wire import Form, Request
from holdfast.runtime.simulated import Machine, World
from holdfast.simulate.redlock import Node
from holdfast.verify.servers.redis import RedisServer

PREFIX = "holdfast:1:{model}:"
LOCKS, CLAIMS = ("lock:a", "lock:b"), ("x-1", "x-2", "y-1")


@pytest.fixture(scope="module")
def server() -> Iterator[redis.Redis]:
    with RedisServer() as running, redis.Redis(port=running.port) as client:
        yield client


def a_call(chance: random.Random) -> tuple[str, tuple[str | int, ...]]:
    """A script and its arguments, with a ttl that does not run out while the test looks."""
    claim, lock = chance.choice(CLAIMS), chance.choice(LOCKS)
    hoped = int(time.time() * 1_000_000) + chance.choice((-5_000_000, 3_000, 50_000_000))
    return chance.choice(
        (
            ("enter", (claim, lock, 600_000, hoped, chance.choice((0, 0, 500_000)), '{"who": 1}')),
            ("enter", (claim, lock, 600_000, hoped, 0, '{"who": 2}')),
            ("confirm", (claim, lock, hoped + chance.choice((-9_000_000, 9_000_000)))),
            ("extend", (600_000, claim, lock, chance.choice(CLAIMS), chance.choice(LOCKS))),
            ("release", (600_000, claim, lock, chance.choice((0, 0, 0, 1)))),
            ("inspect", (*LOCKS,)),
        )
    )


def shape(reply: Any) -> Any:
    """A reply without what two clocks cannot agree on to the microsecond: times, and tokens by their clock."""
    if isinstance(reply, list):
        return [shape(each) for each in reply]
    if isinstance(reply, bytes) and reply.isdigit():
        return "a number"
    if isinstance(reply, int) and reply > 1_000:
        return "a number"
    return reply


@pytest.mark.parametrize("seed", range(5))
def test_a_model_node_answers_like_a_real_one(server: redis.Redis, seed: int) -> None:
    server.flushall()
    chance, world = random.Random(seed), World()
    node = Node(Machine(world, "node"), now=time.time)
    kinds = set()
    for number in range(400):
        name, args = a_call(chance)
        request = Request(Form(script(f"redlock_{name}"), PREFIX), args)
        real = server.eval(request.form.script.text, 1, PREFIX, *args)
        answers: list[Any] = []
        node.handle(request, None, answers.append)

        assert shape(answers[0]) == shape(real), f"call {number}: {name} {args}"
        kinds.add((name, str(real)[:9]))
        if chance.random() < 0.02:
            server.flushall()
            node = Node(Machine(world, "node"), now=time.time)
    assert len(kinds) > 8
