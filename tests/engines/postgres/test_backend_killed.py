"""The server ends a connection in the middle of things."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import holdfast
from tests.engines.postgres.patience import eventually

Connect = Callable[..., holdfast.Client]
Database = psycopg.Connection[Any]


def end_connections(database: Database, schema: str, *, listeners: bool = True) -> int:
    """End every connection whose work is on this schema; how many there were."""
    # Each client of these tests names itself after its schema.
    more = "" if listeners else " AND query NOT LIKE '%LISTEN%'"
    sql = f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = %s{more}"
    row = database.execute(sql, (schema,)).fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
def named(connect: Connect, url: str, schema: str) -> Callable[..., holdfast.Client]:
    """Makes clients whose connections can be told from others."""
    return lambda **settings: connect(url=f"{url}&application_name={schema}", **settings)


def test_a_grant_outlives_the_connection_that_took_it(named: Connect, database: Database, schema: str) -> None:
    locks, rival = named(), named()
    grant = locks.lock("k").acquire()

    assert end_connections(database, schema) >= 2

    assert rival.lock("k").try_acquire() is None
    grant.renew()
    grant.check()
    grant.release()
    again = rival.lock("k").try_acquire()
    assert again is not None
    assert again.token > grant.token
    again.release()


def test_a_waiter_whose_connections_were_ended_is_woken_all_the_same(
    named: Connect, database: Database, schema: str
) -> None:
    locks, rival = named(), named()
    held = rival.lock("k").acquire()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(locks.lock("k", wait=20.0).acquire)
        eventually(lambda: rival.inspect("k").waiters)

        end_connections(database, schema)
        held.release()

        grant = waiting.result(timeout=20)
        assert grant.token > held.token
        threads.submit(grant.release).result()


def test_a_release_whose_connection_was_ended_before_it_commits_leaves_nothing_held(
    named: Connect, database: Database, schema: str, server: Any
) -> None:
    locks, rival = named(), named()
    grant = locks.lock("k").acquire()
    with psycopg.connect(server.url) as blocker:
        # The release has to wait for this, inside its transaction.
        blocker.execute(f"LOCK TABLE {schema}.claims IN SHARE MODE")
        failed: list[holdfast.HoldfastError] = []

        def release() -> None:
            try:
                grant.release()
            except holdfast.HoldfastError as error:
                failed.append(error)

        releasing = threading.Thread(target=release)
        releasing.start()
        eventually(lambda: waits(database, schema))
        end_connections(database, schema)
        releasing.join(20)
        blocker.rollback()

    assert not releasing.is_alive()
    assert isinstance(failed[0], holdfast.EngineUnavailable)
    next_one = rival.lock("k", wait=20.0).acquire()
    assert next_one.token > grant.token
    next_one.release()


def waits(database: Database, schema: str) -> bool:
    sql = "SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"
    return database.execute(sql, (schema,)).fetchone() is not None
