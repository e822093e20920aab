"""A real pgbouncer in between."""

from __future__ import annotations

from contextlib import ExitStack

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


def process_of(connection: psycopg.Connection) -> int:
    """The server process that its open transaction runs in."""
    (pid,) = connection.execute("SELECT pg_backend_pid()").fetchone() or (0,)
    return int(pid)


def pools_transactions(proxy: PgBouncerServer) -> bool:
    """Whether two clients that are connected get the same server process, one after the other."""
    with psycopg.connect(proxy.url) as one, psycopg.connect(proxy.url) as two:
        first = process_of(one)
        one.rollback()
        return first == process_of(two)


def is_over(grant: holdfast.Grant) -> bool:
    """Release it; the connections that the proxy has mixed up fail once each."""
    try:
        grant.release()
    except holdfast.EngineUnavailable:
        return False
    except holdfast.LockLost:
        return True
    return True


@pytest.mark.parametrize("recipe", ["table", "advisory"])
def test_nothing_is_done_in_another_server_process_than_the_clients_own(
    server: PostgresServer, schema: str, recipe: str
) -> None:
    """Not even at once, and where that process would take the statements for those of its own client."""
    counted = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    used = "SELECT pid FROM pg_stat_activity WHERE application_name = %s"
    with PgBouncerServer(server, "session") as proxy, psycopg.connect(server.url, autocommit=True) as database:
        url = f"{proxy.url}?schema={schema}&recipe={recipe}&application_name={schema}"
        with ExitStack() as stack:
            clients = [stack.enter_context(holdfast.connect(f"{url}{number}", ttl=60)) for number in range(2)]
            processes: dict[int, holdfast.Client] = {}
            for number, locks in enumerate(clients):
                locks.lock(f"k{number}").acquire(wait=5.0).release()
                processes |= dict.fromkeys((pid for (pid,) in database.execute(used, (f"{schema}{number}",))), locks)
            proxy.change_mode("transaction")
            eventually(lambda: pools_transactions(proxy))
            # After this request each client's process is the pool's, which gives one of them to another client.
            grants = [locks.lock(f"k{number}").acquire(wait=5.0) for number, locks in enumerate(clients)]
            held = database.execute(counted).fetchone()
            victims: list[holdfast.Client] = []
            others: list[psycopg.Connection] = []

            def takes_one_away() -> bool:
                others.append(psycopg.connect(proxy.url))
                pid = process_of(others[-1])
                victims.extend([processes[pid]] if pid in processes else [])
                return bool(victims)

            eventually(takes_one_away)
            with pytest.raises(holdfast.EngineUnavailable, match="pool_mode=session") as refused:
                victims[0].lock("other").try_acquire()

            assert refused.value.outcome == "not done"
            assert database.execute(counted).fetchone() == held
            for other in others:
                other.close()
            proxy.change_mode("session")
            eventually(lambda: not pools_transactions(proxy))
            for grant in grants:
                eventually(lambda grant=grant: is_over(grant))  # type: ignore[misc]


def test_a_client_closes_after_the_proxy_has_pooled_transactions_for_a_while(
    server: PostgresServer, schema: str
) -> None:
    """Its connections lead to other server processes by then: the first statement on each of them is refused."""
    with PgBouncerServer(server, "session") as proxy, ExitStack() as stack:
        clients = [holdfast.connect(f"{proxy.url}?schema={schema}", ttl=60) for _ in range(2)]
        for number, locks in enumerate(clients):
            locks.lock(f"k{number}").acquire(wait=5.0).release()
        proxy.change_mode("transaction")
        eventually(lambda: pools_transactions(proxy))
        for number, locks in enumerate(clients):
            locks.lock(f"k{number}").acquire(wait=5.0).release()
        # Their server processes are the pool's now, which gives each of them to another client.
        for _ in range(8):
            process_of(stack.enter_context(psycopg.connect(proxy.url)))
        proxy.change_mode("session")
        for locks in clients:
            locks.close()
