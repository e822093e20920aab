"""The answer to a commit gets lost, and the server cannot be asked again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import holdfast
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.postgres import PostgresServer
from tests.engines.postgres.patience import eventually

Connect = Callable[..., holdfast.Client]


@pytest.mark.parametrize("connections", [1, 2])
def test_an_enter_that_may_have_been_done_is_unknown_and_withdrawn(
    server: PostgresServer, connect: Connect, schema: str, connections: int
) -> None:
    witness = connect()
    with Proxy("127.0.0.1", server.port) as proxy:
        url = f"postgresql://holdfast@127.0.0.1:{proxy.port}/postgres?schema={schema}&connections={connections}"
        locks = connect(url=url, ttl=60)
        locks.lock("other").acquire(wait=30.0).release()
        # A plain lock is one message: its answer is cut off, and every new connection.
        proxy.refusing = True
        proxy.replies.set("cut")

        with pytest.raises(holdfast.EngineUnavailable) as failed:
            locks.lock("k").acquire(wait=1.0)

        assert failed.value.outcome == "unknown"
        proxy.heal()
        eventually(lambda: witness.inspect("k").holders == (), within=60)
        locks.close()
