"""What a client remembers of claims that never came to the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import EngineUnavailable
from holdfast.verify.proxy import Proxy
from tests.conformance.apis import Front
from tests.conformance.engines import Subject
from tests.conformance.stage import Stage, eventually

REMEMBERED: dict[str, Callable[[Any], int]] = {
    "redis": lambda engine: engine.ledger.known(),
    "holdfast": lambda engine: len(engine.desk.expected),
}
"""How many claims a client's engine has in mind."""


async def outcome(client: Front, name: str) -> str:
    """How a try ends while there is no way to the server."""
    with pytest.raises(EngineUnavailable) as caught:
        await client.lock(name).try_acquire()
    return caught.value.outcome


async def test_claims_that_were_never_sent_are_not_remembered(far_stage: Stage, subject: Subject, proxy: Proxy) -> None:
    """Nobody withdraws them. On Redis, what is remembered for nothing hides what it has for nobody."""
    client = await far_stage.client(ttl=60.0)
    held = await client.lock("other").acquire()
    proxy.go_down()
    outcomes = [await outcome(client, f"k{number}") for number in range(4)]
    proxy.heal()
    await eventually(lambda: not held.in_danger)

    assert "not done" in outcomes
    await eventually(lambda: REMEMBERED[subject.name](client.target._core.engine) == 1)
