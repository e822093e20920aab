"""A real pgbouncer in between."""

from __future__ import annotations

import psycopg
import pytest

import holdfast
from holdfast.verify.servers.postgres import PostgresServer
from tests.engines.postgres.patience import eventually
from tests.servers.pgbouncer import PgBouncerServer


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_proxy_that_gives_each_transaction_another_server_is_refused(
    server: PostgresServer, schema: str, mode: str
) -> None:
    with (
        PgBouncerServer(server, mode) as proxy,
        holdfast.connect(f"{proxy.url}?schema={schema}") as locks,
        pytest.raises(holdfast.EngineUnavailable, match="pool_mode=session") as refused,
    ):
        locks.lock("k").try_acquire()
    assert refused.value.outcome == "not done"


def test_it_is_refused_also_while_others_are_busy_in_the_same_pool(server: PostgresServer, schema: str) -> None:
    """Several idle servers in the pool: asking once is not enough to be given another one."""
    with PgBouncerServer(server, "transaction") as proxy:
        others = [psycopg.connect(proxy.url) for _ in range(5)]
        try:
            for other in others:
                other.execute("SELECT 1")
            for other in others:
                other.rollback()
            with (
                holdfast.connect(f"{proxy.url}?schema={schema}") as locks,
                pytest.raises(holdfast.EngineUnavailable, match="pool_mode=session"),
            ):
                locks.lock("k").try_acquire()
        finally:
            for other in others:
                other.close()


def test_through_a_session_pool_everything_works(server: PostgresServer, schema: str) -> None:
    with PgBouncerServer(server, "session") as proxy:
        url = f"{proxy.url}?schema={schema}"
        with holdfast.connect(url) as locks, holdfast.connect(url) as rival:
            held = locks.lock("k").acquire()
            with pytest.raises(holdfast.NotAcquired):
                rival.lock("k").acquire(wait=0.05)
            held.release()
            again = rival.lock("k").acquire(wait=5.0)
            assert again.token > held.token
            again.release()


@pytest.mark.parametrize("recipe", ["table", "advisory"])
def test_a_proxy_that_is_told_to_pool_transactions_while_it_runs_is_refused(
    server: PostgresServer, schema: str, recipe: str
) -> None:
    with PgBouncerServer(server, "session") as proxy:
        url = f"{proxy.url}?schema={schema}&recipe={recipe}&application_name={schema}"
        with holdfast.connect(url, ttl=3) as locks, psycopg.connect(server.url, autocommit=True) as database:
            locks.lock("k").acquire(wait=5.0).release()
            proxy.change_mode("transaction")
            database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", (schema,)
            )

            def refused() -> bool:
                try:
                    locks.lock("k").acquire(wait=1.0).release()
                except holdfast.EngineUnavailable as error:
                    return "pool_mode=session" in str(error)
                return False

            eventually(refused)
            proxy.change_mode("session")
