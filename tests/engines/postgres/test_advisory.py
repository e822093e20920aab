"""The advisory recipe, through both APIs."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import aio
from holdfast.engines.advisory import keys as advisory_keys
from holdfast.verify.servers.postgres import PostgresServer
from tests.conformance.abilities import CELLS
from tests.engines.postgres.patience import eventually, soon
from tests.servers.pgbouncer import PgBouncerServer

Connect = Callable[..., holdfast.Client]
Database = psycopg.Connection[Any]


@pytest.fixture
def url(server: PostgresServer, schema: str) -> str:
    """Each test is a namespace; its connections are named after it."""
    return f"{server.url}?recipe=advisory&application_name={schema}"


@pytest.fixture
def connect(url: str, schema: str) -> Iterator[Connect]:
    clients: list[holdfast.Client] = []

    def make(**settings: Any) -> holdfast.Client:
        clients.append(holdfast.connect(settings.pop("url", url), namespace=schema, **settings))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
async def tasks(url: str, schema: str) -> AsyncIterator[Callable[[], Any]]:
    async with AsyncExitStack() as stack:
        yield lambda: stack.enter_async_context(aio.connect(url, namespace=schema))


def end_connections(database: Database, schema: str) -> None:
    database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", (schema,))


def test_only_one_holds_and_tokens_grow(connect: Connect) -> None:
    locks, rival = connect(), connect()
    first = locks.lock("k").acquire()
    assert rival.lock("k").try_acquire() is None
    first.release()

    second = rival.lock("k").acquire()

    assert second.token > first.token
    second.release()


def test_readers_share_and_a_writer_does_not(connect: Connect) -> None:
    locks, rival = connect(), connect()
    with locks.rwlock("k").read(), rival.rwlock("k").read():
        assert rival.rwlock("k").write().try_acquire() is None


def test_two_owners_of_one_client_keep_each_other_out(connect: Connect) -> None:
    """A session may take its own advisory lock again: so each owner has a connection of its own."""
    locks = connect()
    with locks.lock("k"), ThreadPoolExecutor(1) as threads:
        assert threads.submit(locks.lock("k").try_acquire).result() is None


def test_a_waiter_is_granted_when_its_turn_comes(connect: Connect) -> None:
    locks, rival = connect(), connect()
    held = locks.lock("k").acquire()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(rival.lock("k").acquire)
        eventually(lambda: locks.inspect("k").waiters)
        # Longer than a caller attends to its connection by itself: the keeper has to wake it.
        eventually(lambda: locks.inspect("k").waiters[0].age > 0.5)
        held.release()
        grant = waiting.result(timeout=1.5)
        assert grant.token > held.token
        threads.submit(grant.release).result()


def test_a_waiter_that_gives_up_leaves_no_place_behind(connect: Connect) -> None:
    locks, rival = connect(), connect()
    with locks.lock("k"):
        with pytest.raises(holdfast.NotAcquired) as missed:
            rival.lock("k").acquire(wait=0.4)
        assert missed.value.waited < 1.4
        assert locks.inspect("k").waiters == ()
    with rival.lock("k"):
        assert locks.lock("k").try_acquire() is None


def test_a_wait_that_is_over_before_the_server_has_read_it_is_withdrawn(connect: Connect) -> None:
    locks, rival = connect(), connect()
    with locks.lock("k"):
        for wait in (0.001, 0.01, 0.03, 0.05):
            with pytest.raises(holdfast.NotAcquired):
                rival.lock("k").acquire(wait=wait)


async def test_a_task_that_is_cancelled_while_it_waits_leaves_no_place_behind(tasks: Callable[[], Any]) -> None:
    locks, rival = await tasks(), await tasks()
    async with locks.lock("k"):
        kept = await rival.lock("other").acquire()
        waiting = asyncio.create_task(rival.lock("k").acquire())

        async def stands() -> bool:
            return bool((await locks.inspect("k")).waiters)

        await soon(stands)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not await stands()
        kept.check()
        await kept.release()


async def test_tasks_of_one_loop_take_turns(tasks: Callable[[], Any]) -> None:
    locks = await tasks()
    inside = 0

    async def work() -> int:
        nonlocal inside
        async with locks.lock("k") as grant:
            inside += 1
            assert inside == 1
            await asyncio.sleep(0.001)
            inside -= 1
            return int(grant.token)

    tokens = await asyncio.wait_for(asyncio.gather(*(work() for _ in range(20))), 30)
    assert len(set(tokens)) == 20


async def test_heartbeats_lose_nothing_while_tasks_come_and_go(url: str, schema: str) -> None:
    async with aio.connect(url, namespace=schema, ttl=0.9) as locks:
        until = asyncio.get_running_loop().time() + 2.5

        async def work(number: int) -> None:
            while asyncio.get_running_loop().time() < until:
                async with locks.lock(f"k{number}"):
                    await asyncio.sleep(0)

        await asyncio.gather(*(work(number) for number in range(16)))


def test_a_connection_that_ends_is_a_lost_lock_and_noticed_at_once(
    connect: Connect, database: Database, schema: str
) -> None:
    locks, rival = connect(ttl=60), connect(ttl=60)
    grant = locks.lock("k").acquire()
    with rival.lock("mine") as other:
        end_holder(database, grant, locks)

        assert grant.lost.wait(2.0), "its heartbeat is twenty seconds away"
        other.check()
    with pytest.raises(holdfast.LockLost):
        grant.release()
    with rival.lock("k") as after:
        assert after.token > grant.token


def end_holder(database: Database, grant: holdfast.Grant, locks: holdfast.Client) -> None:
    (holder,) = locks.inspect(grant.name).holders
    database.execute("SELECT pg_terminate_backend(%s)", (holder.pid,))


async def test_an_asyncio_body_is_cancelled_when_its_connection_ends(
    tasks: Callable[[], Any], database: Database
) -> None:
    locks = await tasks()

    async def hold() -> None:
        async with locks.lock("k"):
            (holder,) = (await locks.inspect("k")).holders
            database.execute("SELECT pg_terminate_backend(%s)", (holder.pid,))
            await asyncio.sleep(60)

    with pytest.raises(holdfast.LockLost):
        await asyncio.wait_for(hold(), 10)


def deadlock(locks: holdfast.Client, rival: holdfast.Client) -> list[holdfast.Deadlock]:
    """Let two wait for each other; who is refused lets go."""
    start = threading.Barrier(2)

    def work(client: holdfast.Client, first: str, second: str) -> Any:
        with client.lock(first):
            start.wait()
            try:
                with client.lock(second, wait=20.0):
                    return None
            except holdfast.Deadlock as error:
                return error

    with ThreadPoolExecutor(2) as threads:
        jobs = [threads.submit(work, locks, "x", "y"), threads.submit(work, rival, "y", "x")]
        found = [job.result(timeout=30) for job in jobs]
    return [error for error in found if error is not None]


def test_the_servers_deadlock_error_is_a_deadlock(connect: Connect) -> None:
    found = deadlock(connect(), connect())

    assert len(found) == 1
    assert len(found[0].cycle) == 2


def test_a_deadlock_leaves_no_lock_of_any_kind_on_its_connection(connect: Connect, database: Database) -> None:
    deadlock(connect(), connect())

    assert database.execute(ANY_LOCK).fetchone() == (0,)


def test_two_names_with_one_key_are_noticed(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    def weak(kind: str, name: str) -> advisory_keys.Keys:
        return strong(kind, name)._replace(lock=16)

    strong = advisory_keys.keys_of
    monkeypatch.setattr(advisory_keys, "keys_of", weak)
    locks, rival = connect(), connect()
    with locks.lock("one"):
        assert rival.lock("one").try_acquire() is None
        with pytest.raises(holdfast.HoldfastError, match="64-bit key"):
            rival.lock("other").try_acquire()
        with pytest.raises(holdfast.HoldfastError, match="64-bit key"):
            rival.lock("other").acquire(wait=5.0)


def test_a_waiter_that_is_slow_to_wake_is_not_taken_for_another_name(connect: Connect, database: Database) -> None:
    locks, waiter, rival = connect(), connect(), connect()
    grant = locks.lock("k").acquire()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lambda: waiter.lock("k").acquire(wait=60.0).release())
        eventually(lambda: database.execute(IN_LINE).fetchone())
        (process,) = database.execute(IN_LINE).fetchone() or (0,)
        os.kill(process, signal.SIGSTOP)
        try:
            grant.release()  # the server gives the lock to a process that cannot run
            assert rival.lock("k").try_acquire() is None
            assert len(rival.inspect("k").holders) == 1
        finally:
            os.kill(process, signal.SIGCONT)
        waiting.result()


IN_LINE = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def test_a_wait_that_came_to_nothing_leaves_no_lock_of_any_kind_on_its_connection(
    connect: Connect, database: Database
) -> None:
    locks, rival = connect(), connect()
    with locks.lock("k"), pytest.raises(holdfast.NotAcquired):
        rival.lock("k").acquire(wait=0.1)

    assert database.execute(ANY_LOCK).fetchone() == (0,)


ANY_LOCK = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"


def test_three_hundred_names_have_three_hundred_keys() -> None:
    assert len({advisory_keys.keys_of("n.lock", f"name-{number}").lock for number in range(300)}) == 300


def test_a_transaction_pooling_proxy_is_refused(server: PostgresServer) -> None:
    with (
        PgBouncerServer(server, "transaction") as proxy,
        holdfast.connect(f"{proxy.url}?recipe=advisory") as locks,
        pytest.raises(holdfast.EngineUnavailable, match="pool_mode=session"),
    ):
        locks.lock("k").try_acquire()


def test_through_a_session_pool_it_works(server: PostgresServer, schema: str) -> None:
    with PgBouncerServer(server, "session") as proxy:
        url = f"{proxy.url}?recipe=advisory"
        with holdfast.connect(url, namespace=schema) as locks, holdfast.connect(url, namespace=schema) as rival:
            with locks.lock("k"):
                assert rival.lock("k").try_acquire() is None


def test_max_hold_gives_the_lock_back(connect: Connect) -> None:
    locks, rival = connect(), connect()
    grant = locks.lock("k", max_hold=0.3).acquire()
    with rival.lock("k", wait=5.0) as after:
        assert after.token > grant.token
    assert grant.lost.is_set()


def test_everything_is_free_when_the_client_is_closed(connect: Connect) -> None:
    rival = connect()
    rival.lock("connected").acquire().release()
    for _ in range(10):
        locks = connect()
        grants = [locks.lock(f"k{number}").acquire() for number in range(20)]
        locks.close()

        # At once: a server process lets go some time after its connection was closed, unless somebody waits for that.
        rival.lock_all(*(grant.name for grant in reversed(grants)), wait=0).acquire().release()


def test_who_leads_elsewhere_is_not_told_without_a_value(connect: Connect) -> None:
    one, other = connect(), connect()
    with one.election("e", value="host:9000").campaign(wait=30.0):
        assert (leader := one.election("e").leader()) is not None
        assert leader.value == "host:9000"
        with pytest.raises(holdfast.Unsupported, match="who leads"):
            other.election("e").leader()


def test_what_it_cannot_do_is_said(connect: Connect) -> None:
    locks = connect()
    assert not locks.guarantees.leased
    assert locks.guarantees.fencing == "clock"
    with pytest.raises(holdfast.Unsupported):
        locks.semaphore("s", limit=2)
    with pytest.raises(holdfast.Unsupported):
        locks.lock("k", subtree=True)
    for build in CELLS.values():
        with pytest.raises(holdfast.Unsupported):
            build(locks)
    with pytest.raises(holdfast.Unsupported):
        locks.list()
    with pytest.raises(holdfast.WeakerGuarantee):
        connect(require={"leased"})
