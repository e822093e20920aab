"""Several hosts in one URL of the advisory recipe: every lock of a session is held on one server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest

import holdfast
from holdfast.engines.advisory.holdings import Holdings, Taken
from holdfast.engines.postgres.wire import Wire
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


def connect(*servers: PostgresServer) -> holdfast.Client:
    """A client that no heartbeat disturbs."""
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return holdfast.connect(f"postgresql://holdfast@{hosts}/postgres?recipe=advisory", ttl=60)


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


def test_a_client_goes_back_to_the_server_that_it_holds_on(server: PostgresServer, small: PostgresServer) -> None:
    """It does not begin with the other one because that one answered last."""
    with connect(small, server) as locks, ThreadPoolExecutor(1) as other, ExitStack() as stack:
        held = locks.lock("k").acquire(wait=5.0)
        fill(small, stack)
        with pytest.raises(holdfast.EngineUnavailable, match="clients"):
            other.submit(locks.lock("another").try_acquire).result()
        stack.close()

        def taken() -> bool:
            try:
                locks.lock("another").acquire(wait=1.0).release()
            except holdfast.EngineUnavailable:
                return False
            return True

        eventually(lambda: other.submit(taken).result())
        held.check()
        held.release()


def test_owners_that_begin_at_once_do_not_hold_one_lock_on_two_servers(
    server: PostgresServer, small: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have chosen their server before the client held anything."""
    with connect(small, server) as locks, ThreadPoolExecutor(1) as other, ExitStack() as stack:
        locks.lock("k").acquire(wait=5.0).release()  # its connection stays open
        fill(small, stack)
        theirs: list[Future[holdfast.Grant]] = []
        holdings: Holdings = locks._core.verbs.holdings  # type: ignore[attr-defined]
        real = holdings.expect

        def expect(taken: Taken) -> bool:
            if not theirs:
                theirs.append(other.submit(locks.lock("k").acquire, wait=5.0))
                theirs[0].result()
            return real(taken)

        monkeypatch.setattr(holdings, "expect", expect)
        with pytest.raises(holdfast.EngineUnavailable) as refused:
            locks.lock("k").acquire(wait=5.0)

        assert refused.value.outcome == "not done"
        theirs[0].result().check()
        other.submit(theirs[0].result().release).result()


def test_a_server_that_was_restarted_is_another_one(small: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows nothing of what was held, and a machine that lost its power has not said that connections ended."""
    with connect(small) as locks, ThreadPoolExecutor(1) as other:
        held = locks.lock("k").acquire(wait=5.0)
        holdings: Holdings = locks._core.verbs.holdings  # type: ignore[attr-defined]
        looked = threading.Event()

        def watch_nothing() -> list[Wire]:
            looked.set()
            return []

        with monkeypatch.context() as unseen:
            unseen.setattr(holdings, "watchable", watch_nothing)
            holdings.look_up()
            assert looked.wait(30.0)
            small.kill()
            small.start()

            with pytest.raises(holdfast.EngineUnavailable, match="another server") as refused:
                other.submit(locks.lock("k").try_acquire).result()
            assert refused.value.outcome == "not done"
            believed = holdings.good_until
            with pytest.raises(holdfast.EngineUnavailable, match="another server"):
                held.renew()
            assert holdings.good_until == believed
            assert held.valid
        holdings.look_up()
        eventually(held.lost.is_set)


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
