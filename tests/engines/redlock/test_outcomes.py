"""What a caller is told when the way to the nodes is lost in the middle of a try."""

from __future__ import annotations

import pytest
import redis

from holdfast import EngineUnavailable
from tests.conformance.apis import Api
from tests.conformance.stage import Stage, eventually
from tests.engines.redlock.conftest import SUBJECT, Nodes, connected


async def test_votes_that_cannot_be_given_back_are_not_called_not_done(nodes: Nodes, api: Api) -> None:
    """Two nodes have voted for the claim, and nothing can be said to any of them."""
    stage = Stage(SUBJECT, api, nodes.url_with_limit(0.5))
    locks = await connected(stage, "locks")
    for server in nodes.servers[:2]:
        with redis.Redis(port=server.port, db=nodes.database) as client:
            who = '{"owner": "o", "app": "a", "host": "h", "pid": 1, "thread": "t", "note": ""}'
            row = {"claim": "other", "who": who, "token": 1, "since": 1, "dies": 0}
            client.hset("holdfast:1:{holdfast}:lock:lock:k", mapping=row)
    # The last one is waited for while the others are lost.
    nodes.proxies[4].requests.set("stall")
    passed = [proxy.replies.passed for proxy in nodes.proxies]
    trying = stage.begin(locks.lock("k").try_acquire())
    for node in range(4):
        await eventually(lambda node=node: nodes.proxies[node].replies.passed > passed[node])  # type: ignore[misc]
    for proxy in nodes.proxies:
        proxy.go_down()

    with pytest.raises(EngineUnavailable) as caught:
        await trying
    assert nodes.holders("k")[2:4] != [None, None]
    assert caught.value.outcome == "unknown"
    for proxy in nodes.proxies:
        proxy.heal()
    await stage.end()
