"""The advisory recipe: what many threads of one client do at once, and what broken connections leave behind."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.engines.advisory.holdings import AdvisoryBell, Holdings, Taken
from holdfast.engines.advisory.verbs import AdvisoryVerbs
from holdfast.engines.engine import nobody
from holdfast.engines.postgres.sockets import ThreadSockets
from holdfast.engines.postgres.wire import WireLost, dial
from holdfast.runtime import clock
from holdfast.runtime.blocking import run
from holdfast.verify.servers.postgres import PostgresServer
from tests.engines.postgres.patience import eventually

Connect = Callable[[], holdfast.Client]
Database = psycopg.Connection[Any]


@pytest.fixture
def connect(server: PostgresServer, schema: str) -> Iterator[Connect]:
    clients: list[holdfast.Client] = []

    def make() -> holdfast.Client:
        url = f"{server.url}?recipe=advisory&application_name={schema}"
        clients.append(holdfast.connect(url, namespace=schema))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads that are interrupted by one another at almost every line."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def test_a_lock_can_be_looked_at_while_other_threads_take_and_give_back(connect: Connect, restless: None) -> None:
    locks = connect()
    held = [locks.lock(f"held {number}").acquire() for number in range(40)]
    enough = threading.Event()

    def take_turns(name: str) -> None:
        while not enough.is_set():
            locks.lock(name).acquire().release()

    with ThreadPoolExecutor(6) as threads:
        busy = [threads.submit(take_turns, f"busy {number}") for number in range(6)]
        try:
            for _ in range(150):
                locks.inspect("busy 0")
        finally:
            enough.set()
        for each in busy:
            each.result()
    for grant in held:
        grant.release()


def test_a_wait_whose_connection_ended_is_remembered_by_nobody(connect: Connect, database: Database) -> None:
    locks, rival = connect(), connect()
    held = rival.lock("k").acquire()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(locks.lock("k").acquire)
        # Longer than a caller attends to its connection by itself: the keeper sees it break.
        eventually(lambda: [party for party in locks.inspect("k").waiters if party.age > 0.5])
        (ended,) = (party.pid for party in locks.inspect("k").waiters)
        database.execute("SELECT pg_terminate_backend(%s)", (ended,))
        eventually(lambda: [party for party in locks.inspect("k").waiters if party.pid != ended])
        held.release()
        threads.submit(waiting.result().release).result()

    assert not locks._core.verbs.holdings.lost  # type: ignore[attr-defined]


def test_a_connection_that_ends_while_the_keeper_looks_at_it_is_no_error(server: PostgresServer) -> None:
    wire = run(dial(server.url, 0, ThreadSockets(), clock.now() + 10.0))
    holdings = Holdings()
    bell = AdvisoryBell(holdings, nobody)
    holdings.opened(wire)
    wire.connection.finish()  # by another thread, which is about to say so

    assert not bell.wait(0.0)
    bell.close()


def test_a_lock_that_is_granted_after_its_connection_ended_once_is_not_lost(
    connect: Connect, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    attend = AdvisoryVerbs._attend

    async def slowly(verbs: AdvisoryVerbs, taken: Taken, until: float) -> Any:
        try:
            return await attend(verbs, taken, until)
        except WireLost:
            eventually(lambda: taken.claim.id in verbs.holdings.lost)  # the keeper has seen it too
            raise

    locks, rival = connect(), connect()
    held = rival.lock("k").acquire()
    monkeypatch.setattr(AdvisoryVerbs, "_attend", slowly)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(locks.lock("k").acquire)
        eventually(lambda: rival.inspect("k").waiters)
        (ended,) = (party.pid for party in rival.inspect("k").waiters)
        database.execute("SELECT pg_terminate_backend(%s)", (ended,))
        eventually(lambda: any(party.pid != ended for party in rival.inspect("k").waiters))
        held.release()
        grant = waiting.result()
        grant.renew()

        assert grant.valid
        threads.submit(grant.release).result()
