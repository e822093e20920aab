"""A real streaming replica: what `doctor` says of it, and what a failover to it loses."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import holdfast
from holdfast import LockLost, NotAcquired
from holdfast.verify.servers.postgres import PostgresServer
from tests.engines.postgres.patience import eventually
from tests.engines.postgres.test_doctor import findings
from tests.faults.looks import looked_at
from tests.servers.postgres_replica import PostgresReplica


@pytest.fixture
def primary() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def replica(primary: PostgresServer) -> Iterator[PostgresReplica]:
    with PostgresReplica(primary) as server:
        eventually(lambda: streaming(primary) == ["async"], within=60)
        yield server


def streaming(primary: PostgresServer) -> list[str]:
    """How each replica follows."""
    with psycopg.connect(primary.url) as connection:
        found = connection.execute("SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'")
        return [str(row[0]) for row in found]


def wait_for_replicas(primary: PostgresServer) -> None:
    """Let no commit end before a replica has it."""
    with psycopg.connect(primary.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        connection.execute("SELECT pg_reload_conf()")
    eventually(lambda: streaming(primary) == ["sync"], within=60)


def test_doctor_calls_an_asynchronous_replica_a_danger_and_a_synchronous_one_good(
    primary: PostgresServer, replica: PostgresReplica
) -> None:
    found = findings(primary.url)["replication"]
    assert (found.level, found.found) == ("danger", "1 asynchronous")
    assert "two holders at once" in found.consequence
    assert findings(replica.url)["replication"].level == "danger", "nothing can be granted on a standby"

    wait_for_replicas(primary)

    found = findings(primary.url)["replication"]
    assert found.level == "good"
    assert "1 synchronous of 1" in found.found

    replica.stop()

    eventually(lambda: findings(primary.url)["replication"].level == "warning", within=60)


def test_a_failover_to_a_synchronous_replica_loses_no_grant_and_no_token(
    primary: PostgresServer, replica: PostgresReplica
) -> None:
    wait_for_replicas(primary)
    with holdfast.connect(primary.url, ttl=300) as locks:
        grant = locks.lock("k").acquire(wait=60.0)
        primary.kill()
        replica.promote()

        with holdfast.connect(replica.url, ttl=60) as elsewhere:
            with pytest.raises(NotAcquired):
                elsewhere.lock("k").acquire(wait=2.0)
            elsewhere.break_lock("k", force=True)
            with elsewhere.lock("k").acquire(wait=60.0) as later:
                assert later.token > grant.token
        give_up(locks)


def test_a_failover_to_an_asynchronous_replica_that_was_behind_makes_two_holders_as_doctor_says(
    primary: PostgresServer, replica: PostgresReplica
) -> None:
    """The control."""
    with holdfast.connect(primary.url, ttl=300) as locks:
        locks.list()
        copied(primary)
        replica.stop()
        grant = locks.lock("k").acquire(wait=60.0)
        primary.kill()
        replica.start()
        replica.promote()

        with holdfast.connect(replica.url, ttl=60) as elsewhere:
            second = elsewhere.lock("k").acquire(wait=60.0)
            assert grant.valid
            assert second.token <= grant.token
            second.release()
        give_up(locks)


def give_up(locks: holdfast.Client) -> None:
    """The server is gone for good: nobody is there to be told that the session ends."""
    core = locks._core
    assert core.keeper is not None
    assert core.session is not None
    core.keeper.end(core.session, "its server is gone")


def copied(primary: PostgresServer) -> None:
    """Wait until the replica has everything."""
    with psycopg.connect(primary.url, autocommit=True) as connection:
        sql = "SELECT bool_and(replay_lsn >= pg_current_wal_flush_lsn()) FROM pg_stat_replication"
        eventually(lambda: connection.execute(sql).fetchone() == (True,), within=60)


@pytest.mark.parametrize("recipe", ["table", "advisory"])
def test_a_standby_is_passed_over(primary: PostgresServer, replica: PostgresReplica, recipe: str) -> None:
    hosts = f"127.0.0.1:{replica.port},127.0.0.1:{primary.port}"
    with (
        holdfast.connect(f"postgresql://holdfast@{hosts}/postgres?recipe={recipe}") as locks,
        holdfast.connect(f"{primary.url}?recipe={recipe}") as others,
        holdfast.connect(f"{replica.url}?recipe={recipe}") as misled,
    ):
        with locks.lock("k"):
            assert others.lock("k").try_acquire() is None
            with pytest.raises(holdfast.EngineUnavailable, match="standby") as refused:
                misled.lock("k").try_acquire()
            assert refused.value.outcome == "not done"


def test_a_holder_hears_that_the_server_came_back_without_its_grant(
    primary: PostgresServer, replica: PostgresReplica
) -> None:
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{replica.port}"
    with holdfast.connect(f"postgresql://holdfast@{hosts}/postgres", ttl=300) as locks:
        locks.lock("earlier").acquire(wait=60.0).release()
        copied(primary)
        replica.stop()
        grant = locks.lock("k").acquire(wait=60.0)
        primary.kill()
        replica.start()
        replica.promote()

        eventually(grant.lost.is_set, within=60)
        with pytest.raises(LockLost, match="older state"):
            grant.check()
        with locks.lock("k", wait=60.0) as later:
            later.check()


def test_a_holder_keeps_a_grant_that_the_next_server_has(primary: PostgresServer, replica: PostgresReplica) -> None:
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{replica.port}"
    with holdfast.connect(f"postgresql://holdfast@{hosts}/postgres", ttl=300) as locks:
        grants = [locks.lock(name).acquire(wait=60.0) for name in ("k", "l")]
        copied(primary)
        asked = looked_at(locks)
        primary.kill()
        replica.promote()

        eventually(lambda: set(asked) == {"k", "l"}, within=60)
        for grant in grants:
            grant.release()


def test_what_a_replica_that_was_behind_does_not_know_is_put_right(
    primary: PostgresServer, replica: PostgresReplica
) -> None:
    """Locks that were given back since do not stay held, and a watch hears that its events were lost."""
    url = f"postgresql://holdfast@127.0.0.1:{primary.port},127.0.0.1:{replica.port}/postgres"
    with (
        ThreadPoolExecutor(1) as threads,
        holdfast.connect(url, ttl=300) as locks,
        holdfast.connect(url, ttl=300) as others,
        others.watch("k") as events,
    ):
        kept = locks.lock("kept").acquire(wait=60.0)
        grant = locks.lock("k").acquire(wait=60.0)
        assert next(events).token == grant.token
        copied(primary)
        replica.stop()
        grant.release()
        assert next(events).type == "released"
        primary.kill()
        replica.start()
        replica.promote()

        for _ in range(2):
            others.lock("k").acquire(wait=60.0).release()
        kept.release()
        with pytest.raises(holdfast.HoldfastError, match="lost data"):
            threads.submit(next, events).result(60.0)
