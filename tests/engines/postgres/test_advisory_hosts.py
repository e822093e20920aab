"""Several hosts in one URL of the advisory recipe: every lock of a session is held on one server."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest

import holdfast
from holdfast.verify.servers.postgres import QUICK, PostgresServer
from tests.engines.postgres.patience import eventually

FEW = {"max_connections": "10", "superuser_reserved_connections": "0", "max_wal_senders": "0"}


@pytest.fixture(scope="module")
def small() -> Iterator[PostgresServer]:
    """A server that takes only a few connections."""
    with PostgresServer(QUICK | FEW) as server:
        yield server


def fill(server: PostgresServer, stack: ExitStack) -> None:
    """Take every connection that is left."""
    for _ in range(20):
        try:
            stack.enter_context(psycopg.connect(server.url))
        except psycopg.OperationalError:
            return
    raise AssertionError("it takes more than a few connections")


def test_a_client_never_holds_one_lock_on_two_servers(server: PostgresServer, small: PostgresServer) -> None:
    hosts = f"127.0.0.1:{small.port},127.0.0.1:{server.port}"
    url = f"postgresql://holdfast@{hosts}/postgres?recipe=advisory"
    with holdfast.connect(url, ttl=5) as locks, ThreadPoolExecutor(1) as other, ExitStack() as stack:
        held = locks.lock("k").acquire(wait=5.0)
        fill(small, stack)

        with pytest.raises(holdfast.EngineUnavailable) as refused:
            other.submit(locks.lock("k").try_acquire).result()

        assert refused.value.outcome == "not done"
        held.check()
        stack.close()
        held.release()
        again = other.submit(locks.lock("k").acquire, wait=10.0).result()
        other.submit(again.release).result()


def test_a_client_that_holds_nothing_any_more_goes_on_with_the_next_server(
    server: PostgresServer, small: PostgresServer
) -> None:
    hosts = f"127.0.0.1:{small.port},127.0.0.1:{server.port}"
    with holdfast.connect(f"postgresql://holdfast@{hosts}/postgres?recipe=advisory", ttl=2) as locks:
        lost = locks.lock("k").acquire(wait=5.0)
        small.stop()
        eventually(lost.lost.is_set)

        def taken() -> bool:
            try:
                locks.lock("k").acquire(wait=1.0).release()
            except holdfast.EngineUnavailable:
                return False
            return True

        eventually(taken)
        small.start()
