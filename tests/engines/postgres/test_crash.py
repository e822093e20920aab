"""The server stops dead, and comes back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import psycopg
import pytest

import holdfast
from holdfast.verify.servers.postgres import PostgresServer
from tests.engines.postgres.patience import eventually


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that nobody else uses."""
    with PostgresServer() as server:
        yield server


def crash(server: PostgresServer) -> None:
    """`pg_ctl stop -m immediate`: no checkpoint, no farewell."""
    os.kill(server.pid, signal.SIGQUIT)
    server.stop()


def test_no_token_comes_again_after_a_crash(own_server: PostgresServer) -> None:
    seen: list[int] = []
    for _ in range(3):
        with holdfast.connect(own_server.url, ttl=60) as locks:
            # A refused step must not use up what a later one relies on: that is how a sequence repeats itself.
            held = locks.lock("k").acquire()
            with holdfast.owner("somebody-else"):
                assert locks.lock("k").try_acquire() is None
            seen.append(held.token)
            held.release()
            for name in ("k", "other", "k"):
                grant = locks.lock(name).acquire()
                seen.append(grant.token)
                grant.release()
            crash(own_server)
            own_server.start()

            def works(locks: holdfast.Client = locks) -> bool:
                try:
                    return locks.list() is not None
                except holdfast.EngineUnavailable:
                    return False

            eventually(works)
    k = [token for number, token in enumerate(seen) if number % 4 != 2]
    assert k == sorted(set(k))


def test_what_is_held_is_still_held_after_a_crash(own_server: PostgresServer) -> None:
    with holdfast.connect(own_server.url, ttl=60) as locks, holdfast.connect(own_server.url, ttl=60) as rival:
        grant = locks.lock("k").acquire()
        crash(own_server)
        with pytest.raises(holdfast.EngineUnavailable) as unavailable:
            rival.lock("k").try_acquire()
        assert unavailable.value.outcome == "not done"
        own_server.start()

        assert rival.lock("k").try_acquire() is None
        grant.renew()
        grant.release()
        after = rival.lock("k").acquire()
        assert after.token > grant.token
        after.release()


def test_a_release_that_was_not_on_disk_is_made_again_after_a_crash(own_server: PostgresServer) -> None:
    with psycopg.connect(own_server.url, autocommit=True) as database:
        # Nothing is written to the disk by itself for half a minute.
        database.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
        database.execute("SELECT pg_reload_conf()")
    with holdfast.connect(own_server.url, ttl=60) as locks, holdfast.connect(own_server.url, ttl=60) as rival:
        rival.list()
        grant = locks.lock("k").acquire()
        grant.release()
        crash(own_server)
        own_server.start()

        after = rival.lock("k").acquire(wait=20.0)
        assert after.token > grant.token
        after.release()


def test_a_sequence_comes_again_after_a_crash_and_the_counter_does_not(own_server: PostgresServer) -> None:
    """Trap 8; the sequence is the control."""
    with psycopg.connect(own_server.url, autocommit=True) as database:
        database.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
        database.execute("SELECT pg_reload_conf()")
        database.execute("CREATE SEQUENCE numbers")
        database.execute("CHECKPOINT")
    with holdfast.connect(own_server.url, ttl=60) as locks:
        before = locks.lock("k").acquire(wait=60.0)
        before.release()
    with psycopg.connect(own_server.url, autocommit=True) as database:
        for statement in ("BEGIN", "SELECT nextval('numbers')", "ROLLBACK"):
            database.execute(statement.encode())
        given = number(database)
        crash(own_server)
    own_server.start()

    with psycopg.connect(own_server.url, autocommit=True) as database:
        assert number(database) <= given
    with holdfast.connect(own_server.url, ttl=60) as locks, locks.lock("k").acquire(wait=60.0) as after:
        assert after.token > before.token


def number(database: psycopg.Connection[tuple[int]]) -> int:
    row = database.execute("SELECT nextval('numbers')").fetchone()
    assert row is not None
    return row[0]
