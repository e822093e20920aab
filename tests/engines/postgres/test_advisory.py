"""The advisory recipe, through both APIs."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import aio
from holdfast.engines.advisory import keys as advisory_keys
from holdfast.verify.servers.postgres import PostgresServer
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


def test_a_lock_that_goes_from_hand_to_hand_is_never_taken_for_anothers(connect: Connect) -> None:
    locks, looker = connect(), connect()
    enough = threading.Event()

    def take_turns() -> None:
        while not enough.is_set():
            locks.lock("k").acquire().release()

    with ThreadPoolExecutor(2) as threads:
        turns = [threads.submit(take_turns) for _ in range(2)]
        try:
            for _ in range(1000):
                # Collision, if somebody seemed to hold it under another name.
                looker.inspect("k")
        finally:
            enough.set()
        for turn in turns:
            turn.result()


def test_a_server_that_does_not_say_since_when_somebody_waits_shows_the_line_all_the_same(
    connect: Connect, database: Database, url: str, schema: str
) -> None:
    # As PostgreSQL 12 and 13: their pg_locks has no waitstart.
    columns = "locktype, database, classid, objid, objsubid, pid, mode, granted"
    database.execute(f"CREATE DATABASE {schema}".encode())
    older = url.replace("/postgres?", f"/{schema}?")
    with psycopg.connect(older.partition("?")[0], autocommit=True) as there:
        there.execute("CREATE SCHEMA older")
        there.execute(f"CREATE VIEW older.pg_locks AS SELECT {columns} FROM pg_catalog.pg_locks".encode())
        there.execute(f"ALTER DATABASE {schema} SET search_path = older, pg_catalog".encode())
    locks, rival = connect(url=older), connect(url=older)
    held = locks.lock("k").acquire()
    assert rival.lock("k").try_acquire() is None
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(rival.lock("k").acquire)
        eventually(lambda: locks.inspect("k").waiters)
        assert locks.inspect("k").waiters[0].age >= 0.0
        held.release()
        threads.submit(waiting.result(timeout=30.0).release).result()


def test_a_refusal_is_told_although_the_server_does_not_say_who_is_in_the_way(
    connect: Connect, database: Database
) -> None:
    locks, rival = connect(), connect()
    # Whoever connects looks at that table too: everything that it needs is there before.
    rival.inspect("k")
    rival.lock("other").acquire().release()
    with locks.lock("k"), database.transaction():
        database.execute("LOCK TABLE pg_database IN ACCESS EXCLUSIVE MODE")

        assert rival.lock("k").try_acquire() is None


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


async def test_a_client_that_is_closed_while_a_task_connects_leaves_no_connection_behind(
    url: str, schema: str, database: Database
) -> None:
    connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    for turns in (1, 3, 10, 30, 60, 100, 200, 400):
        locks = await aio.connect(url, namespace=schema)
        await (await locks.lock("first").acquire()).release()
        tasks = [asyncio.create_task(locks.lock(f"k{number}").acquire()) for number in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await locks.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def gone() -> bool:
        return database.execute(connections, (schema,)).fetchone() == (0,)

    await soon(gone, within=15.0)


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


def test_a_wait_that_is_given_up_just_after_it_was_granted_leaves_no_lock(connect: Connect, database: Database) -> None:
    """The server hands the lock to a process that cannot run, and that finds the cancel first when it can."""
    locks, waiter = connect(), connect()
    grant = locks.lock("k").acquire()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(waiter.lock("k").acquire, 1.0)
        eventually(lambda: database.execute(IN_LINE).fetchone())
        (process,) = database.execute(IN_LINE).fetchone() or (0,)
        os.kill(process, signal.SIGSTOP)
        try:
            grant.release()
            eventually(lambda: waiting.done() or is_pending(process, signal.SIGINT))
        finally:
            os.kill(process, signal.SIGCONT)
        with pytest.raises((holdfast.NotAcquired, holdfast.EngineUnavailable)):
            waiting.result()

    eventually(lambda: database.execute(ANY_LOCK).fetchone() == (0,))


def is_pending(process: int, number: signal.Signals) -> bool:
    """Whether a signal was sent to a process that has not taken it yet."""
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines() if ":\t" in line
    )
    return bool((int(status["SigPnd"], 16) | int(status["ShdPnd"], 16)) >> (number - 1) & 1)


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


def test_everything_is_free_when_the_client_is_closed(connect: Connect) -> None:
    rival = connect()
    rival.lock("connected").acquire().release()
    for _ in range(10):
        locks = connect()
        grants = [locks.lock(f"k{number}").acquire() for number in range(20)]
        locks.close()

        # At once: a server process lets go some time after its connection was closed, unless somebody waits for that.
        rival.lock_all(*(grant.name for grant in reversed(grants)), wait=0).acquire().release()


def test_an_answer_that_does_not_come_leaves_the_outcome_open_until_its_server_process_is_gone(
    connect: Connect, database: Database
) -> None:
    locks, rival = connect(ttl=60), connect(ttl=60)
    with locks.lock("warm"):
        (holder,) = locks.inspect("warm").holders  # the connection is used again
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        with pytest.raises(holdfast.EngineUnavailable) as failed:
            locks.lock("k").acquire(wait=0.0)
    finally:
        os.kill(holder.pid, signal.SIGCONT)
    assert failed.value.outcome == "unknown"
    with rival.lock("k", wait=30.0):
        there = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
        eventually(lambda: database.execute(there, (holder.pid,)).fetchone() is None)
