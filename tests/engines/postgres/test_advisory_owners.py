"""The advisory recipe: a connection is one owner's at a time, whoever asks and gives back at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import aio
from holdfast.runtime import clock
from holdfast.verify.servers.postgres import PostgresServer
from tests.engines.postgres.patience import soon

Tasks = Callable[..., Any]
Database = psycopg.Connection[Any]


@pytest.fixture
def url(server: PostgresServer, schema: str) -> str:
    """Each test is a namespace; its connections are named after it."""
    return f"{server.url}?recipe=advisory&application_name={schema}"


@pytest.fixture
async def tasks(url: str, schema: str) -> AsyncIterator[Tasks]:
    async with AsyncExitStack() as stack:
        yield lambda options="": stack.enter_async_context(aio.connect(url + options, namespace=schema))


async def test_what_an_owner_takes_while_another_task_gives_back_its_last_lock_is_its_alone(tasks: Tasks) -> None:
    locks = await tasks()
    first = await locks.lock("a").acquire()
    released = asyncio.create_task(first.release())
    await asyncio.sleep(0)  # it is on the owner's connection now

    second = await locks.lock("b").acquire()
    await released

    # Another owner, for whom there is a connection that nobody uses.
    assert await asyncio.create_task(locks.lock("b").try_acquire()) is None
    await second.release()


async def test_two_tasks_of_one_owner_leave_no_connection_behind(tasks: Tasks) -> None:
    locks = await tasks("&connections=2")

    with holdfast.owner("both"):
        both = [asyncio.create_task(locks.lock(name).acquire()) for name in ("a", "b")]
    await asyncio.gather(*[grant.release() for grant in await asyncio.gather(*both)])

    # Each of the two is free for an owner of its own.
    grants = [await asyncio.create_task(locks.lock(name).acquire(wait=5.0)) for name in ("a", "b")]
    await asyncio.gather(*[grant.release() for grant in grants])


async def test_what_is_given_back_twice_does_not_take_it_from_the_next(tasks: Tasks) -> None:
    locks, rival = await tasks(), await tasks()
    first = await locks.lock("a").acquire()
    verbs = locks._core.verbs
    (again,) = verbs.holdings.taken.values()
    await first.release()
    second = await asyncio.create_task(locks.lock("a").acquire())

    # As the keeper does that found the claim before the release and has come to the loop's turn only now.
    await verbs._give(again, clock.now() + 5.0)

    assert await rival.lock("a").try_acquire() is None
    await second.release()


async def test_every_waiter_is_woken_by_the_server(tasks: Tasks) -> None:
    locks, rival = await tasks(), await tasks()
    asked: list[str] = []
    enter = locks._core.verbs.enter

    async def count(claim: Any, until: float) -> Any:
        asked.append(claim.id)
        return await enter(claim, until)

    locks._core.verbs.enter = count
    for _ in range(8):
        held = await rival.lock("a").acquire()
        waiting = asyncio.create_task(locks.lock("a").acquire())
        await soon(lambda: told_to_wait(locks))
        await held.release()
        await (await waiting).release()

    # Nobody looked by itself whether its turn had come.
    assert len(asked) == len(set(asked))


async def told_to_wait(locks: Any) -> bool:
    """Whether the keeper, and nobody else, sees to the one that waits."""
    return bool(locks._core.waiting)


async def test_tasks_whose_connections_ended_leave_none_behind(tasks: Tasks, database: Database, schema: str) -> None:
    locks = await tasks("&connections=2")

    async def hold() -> None:
        grant = await locks.lock("a").acquire()
        end_all(database, schema)
        await grant.lost.wait()
        with pytest.raises(holdfast.LockLost):
            await grant.release()

    for _ in range(3):
        await asyncio.create_task(hold())

    await (await locks.lock("a").acquire(wait=5.0)).release()


def end_all(database: Database, schema: str) -> None:
    database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", (schema,))
