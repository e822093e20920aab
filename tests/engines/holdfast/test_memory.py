"""What a client remembers of its claims."""

from __future__ import annotations

import pytest

from holdfast import EngineUnavailable
from holdfast.verify.proxy import Proxy
from tests.conformance.apis import Api, Front
from tests.conformance.stage import Stage, eventually
from tests.engines.holdfast.conftest import SUBJECT
from tests.servers.lock_server import LockServer


async def outcome(client: Front, name: str) -> str:
    """How a try ends while there is no way to the server."""
    with pytest.raises(EngineUnavailable) as caught:
        await client.lock(name).try_acquire()
    return caught.value.outcome


async def test_claims_that_were_never_sent_are_not_remembered(server: LockServer, api: Api) -> None:
    """Nobody withdraws them."""
    with Proxy("127.0.0.1", server.port) as proxy:
        stage = Stage(SUBJECT, api, f"holdfast://127.0.0.1:{proxy.port}")
        client = await stage.client(ttl=60.0)
        held = await client.lock("other").acquire()
        proxy.go_down()
        outcomes = [await outcome(client, f"k{number}") for number in range(3)]
        proxy.heal()
        await eventually(lambda: not held.in_danger)

        assert "not done" in outcomes
        await eventually(lambda: len(client.target._core.engine.desk.expected) == 1)
        await stage.end()
