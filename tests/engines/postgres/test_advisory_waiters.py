"""The advisory recipe with more waiters than connections: they wait in the client, in order, and none is refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import Deadlock, EngineUnavailable, NotAcquired, aio
from holdfast.engines.advisory.verbs import MOST_SENT
from holdfast.verify.servers.postgres import PostgresServer
from tests.conformance.stage import eventually, soon

Tasks = Callable[..., Any]
Database = psycopg.Connection[Any]
CROWD = 40


@pytest.fixture
def url(server: PostgresServer, schema: str) -> str:
    """Each test is a namespace; its connections are named after it."""
    return f"{server.url}?recipe=advisory&application_name={schema}"


@pytest.fixture
async def tasks(url: str, schema: str) -> AsyncIterator[Tasks]:
    async with AsyncExitStack() as stack:
        yield lambda options="", application=schema: stack.enter_async_context(
            aio.connect(url.replace(schema, application) + options, namespace=schema)
        )


async def waiting(locks: Any, number: int) -> None:
    """Until so many calls of a client wait."""
    await eventually(lambda: len(locks._core.waiting) == number)


def in_postgres(database: Database, schema: str) -> int:
    """How many waiters the server has of a client."""
    (row,) = database.execute(
        "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)"
        " WHERE locktype = 'advisory' AND NOT granted AND application_name = %s",
        (schema,),
    ).fetchall()
    return int(row[0])


async def test_more_waiters_than_connections_are_told_that_the_lock_was_not_granted(tasks: Tasks) -> None:
    locks, rival = await tasks("&connections=4"), await tasks()
    held = await rival.lock("k").acquire()
    missed = await asyncio.gather(*(locks.lock("k").acquire(wait=1.0) for _ in range(CROWD)), return_exceptions=True)

    assert [type(each) for each in missed] == [NotAcquired] * CROWD, {str(each) for each in missed}
    assert not locks._core.withdrawals
    assert not locks._core.verbs.holdings.turns._names
    await held.release()
    await (await locks.lock("k").acquire(wait=5.0)).release()


def test_more_waiting_threads_than_connections_are_told_that_the_lock_was_not_granted(url: str, schema: str) -> None:
    with (
        holdfast.connect(f"{url}&connections=4", namespace=schema) as locks,
        holdfast.connect(url, namespace=schema) as rival,
        ThreadPoolExecutor(CROWD) as threads,
    ):
        together = threading.Barrier(CROWD)

        def miss() -> type[BaseException]:
            together.wait()
            with pytest.raises(NotAcquired) as missed:
                locks.lock("k").acquire(wait=1.0)
            return missed.type

        with rival.lock("k"):
            assert list(threads.map(lambda _: miss(), range(CROWD))) == [NotAcquired] * CROWD


async def test_waiters_of_one_name_leave_connections_for_others(tasks: Tasks, database: Database, schema: str) -> None:
    locks, rival = await tasks(), await tasks()
    async with rival.lock("k"):
        crowd = [asyncio.create_task(locks.lock("k").acquire()) for _ in range(100)]
        await waiting(locks, len(crowd))
        await eventually(lambda: in_postgres(database, schema) == MOST_SENT)

        async with locks.lock("another", wait=5.0):
            pass
        for each in crowd:
            each.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)


@pytest.mark.parametrize("connections", [3, 90])
async def test_waiters_of_one_client_are_granted_in_the_order_in_which_they_came(
    tasks: Tasks, connections: int
) -> None:
    locks, rival = await tasks(f"&connections={connections}"), await tasks()
    held = await rival.lock("k").acquire()
    order: list[int] = []

    async def once(number: int) -> None:
        async with locks.lock("k"):
            order.append(number)

    crowd = []
    for number in range(CROWD):
        crowd.append(asyncio.create_task(once(number)))
        await waiting(locks, number + 1)
    await held.release()
    await asyncio.gather(*crowd)

    assert order == list(range(CROWD))


@pytest.mark.parametrize("left", [[0], [1], [0, 1], [0, 1, 2], [1, 3], [0, 2, 4]])
async def test_a_waiter_that_is_cancelled_keeps_none_behind_it_waiting(tasks: Tasks, left: list[int]) -> None:
    locks, rival = await tasks("&connections=3"), await tasks()
    held = await rival.lock("k").acquire()
    order: list[int] = []

    async def once(number: int) -> None:
        async with locks.lock("k"):
            order.append(number)

    crowd = []
    for number in range(5):
        crowd.append(asyncio.create_task(once(number)))
        await waiting(locks, number + 1)
    for number in left:
        crowd[number].cancel()
    await held.release()
    ended = await asyncio.gather(*crowd, return_exceptions=True)

    assert [isinstance(each, asyncio.CancelledError) for each in ended] == [number in left for number in range(5)]
    assert order == [number for number in range(5) if number not in left]
    assert not locks._core.verbs.holdings.turns._names


async def test_readers_that_wait_in_the_client_hold_together(tasks: Tasks) -> None:
    locks, rival = await tasks("&connections=8"), await tasks()
    held = await rival.lock("k").acquire()
    crowd = [asyncio.create_task(locks.rwlock("k").read().acquire()) for _ in range(6)]
    await waiting(locks, len(crowd))
    await held.release()

    for grant in await soon(asyncio.gather(*crowd)):
        await grant.release()


async def test_a_deadlock_of_a_holder_that_comes_behind_others_of_its_client_is_found(tasks: Tasks) -> None:
    """The server refuses whichever it chooses of those in the cycle: one of the two, or a waiter between them."""
    locks = await tasks("&connections=6")
    turn = asyncio.Event()

    async def take(*names: str) -> str:
        try:
            async with locks.lock(names[0]):
                await turn.wait()
                return await take(*names[1:]) if names[1:] else "granted"
        except Deadlock:
            return "deadlock"

    both = [asyncio.create_task(take(*names)) for names in (("a", "b"), ("b", "a"))]
    await eventually(lambda: len(locks._core.verbs.holdings.taken) == 2)
    others = [asyncio.create_task(take(name)) for name in "ab" for _ in range(4)]
    await waiting(locks, len(others))
    turn.set()

    ended = await soon(asyncio.gather(*both, *others))
    assert set(ended) == {"deadlock", "granted"}, ended


async def test_waiters_in_the_client_are_served_after_all_its_connections_have_ended(
    tasks: Tasks, database: Database, schema: str
) -> None:
    locks = await tasks("&connections=3")
    rival = await tasks(application="rival")
    held = await rival.lock("k").acquire()
    crowd = [asyncio.create_task(locks.lock("k").acquire()) for _ in range(10)]
    await waiting(locks, len(crowd))
    database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", (schema,))
    await held.release()

    for each in asyncio.as_completed(crowd):
        await (await soon(each)).release()


async def test_a_client_whose_connections_are_all_held_says_so(tasks: Tasks) -> None:
    """Only of waiters behind others it is known that they have to wait: here the lock may be free."""
    locks = await tasks("&connections=2")
    locks._core.call_limit = 1.0
    held = [await asyncio.create_task(locks.lock(name).acquire()) for name in "ab"]

    with pytest.raises(EngineUnavailable, match="all connections were busy"):
        await asyncio.create_task(locks.lock("c").acquire(wait=0.5))
    for grant in held:
        await grant.release()
