"""What the engine costs the server."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

import holdfast
from holdfast import aio
from tests.engines.postgres.patience import soon

Connect = Callable[..., holdfast.Client]
Database = psycopg.Connection[Any]

NAMES = int(os.environ.get("HOLDFAST_ONE_OFF_NAMES", "300"))
"""A million takes a quarter of an hour."""


def count(database: Database, sql: str) -> int:
    row = database.execute(sql.encode()).fetchone()
    assert row is not None
    return int(row[0])


async def stand(database: Database, schema: str, waiters: Sequence[asyncio.Task[aio.Grant]]) -> bool:
    """Whether all of them stand in line behind the holder."""
    assert [waiter for waiter in waiters if waiter.done()] == []
    return count(database, f"SELECT count(*) FROM {schema}.claims") > len(waiters)


async def test_a_thousand_waiters_of_one_process_share_three_connections(
    url: str, database: Database, schema: str
) -> None:
    async with aio.connect(f"{url}&application_name={schema}", ttl=60) as locks:
        locks._core.call_limit = 60.0  # on a busy machine a line of a thousand takes longer than one request may
        held = await locks.lock("k").acquire()
        waiters: list[asyncio.Task[aio.Grant]] = []
        async with asyncio.timeout(100):
            while len(waiters) < 1000:
                # In groups: all of those who come at the same moment have to be through within one request's limit.
                waiters += [asyncio.create_task(locks.lock("k").acquire()) for _ in range(25)]
                await soon(functools.partial(stand, database, schema, waiters))

        assert count(database, f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{schema}'") <= 3
        assert held.valid
    # All of them end with their client: to leave one by one takes longer than to come.
    ended = await asyncio.gather(*waiters, return_exceptions=True)
    assert all(isinstance(each, holdfast.HoldfastError) for each in ended)


def test_one_off_names_leave_nothing_behind(connect: Connect, database: Database, schema: str) -> None:
    with connect() as locks:
        for number in range(NAMES):
            locks.lock(f"one-off/{number}").acquire().release()

        assert count(database, f"SELECT count(*) FROM {schema}.claims") == 0
        assert count(database, f"SELECT count(*) FROM {schema}.tombstones") == 0
        assert count(database, f"SELECT count(*) FROM {schema}.counters") == 256


def test_a_grant_makes_two_dead_rows(connect: Connect, database: Database, schema: str) -> None:
    locks = connect(ttl=60)
    locks.lock("k").acquire().release()
    sql = (
        "SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::int FROM pg_stat_user_tables"
        f" WHERE schemaname = '{schema}' AND relname <> 'sessions'"
    )
    locks.close()  # a connection that ends brings its figures in
    before = count(database, sql)
    pairs = 200
    with connect(ttl=60) as other:
        for _ in range(pairs):
            other.lock("k").acquire().release()

    made = 0
    for _ in range(200):
        made = count(database, sql) - before
        if made >= 2 * pairs:
            break
        database.execute("SELECT pg_sleep(0.02)")
    assert 2 * pairs <= made <= 2 * pairs + 10


def test_a_claim_that_arrived_after_its_sessions_funeral_is_cleared_away(
    connect: Connect, database: Database, schema: str
) -> None:
    locks = connect(ttl=5)
    sweeper = connect(ttl=60)
    grant = locks.lock("k").acquire()
    (session,) = database.execute(f"SELECT session FROM {schema}.claims".encode()).fetchone() or ("",)
    grant.release()
    locks.close()
    database.execute(
        f"INSERT INTO {schema}.claims SELECT '{session}-99', '{session}', 'o', 'holdfast.lock', 'late', 'exclusive',"
        " false, 0, false, NULL, '', '', 1, 0, 1, NULL, NULL, ''".encode()
    )

    taken = sweeper.lock("late").try_acquire()
    assert taken is not None, "a dead session's claim keeps nobody out"
    database.execute(f"UPDATE {schema}.sessions SET buried_at = 0 WHERE id = '{session}'".encode())
    taken.renew()

    assert count(database, f"SELECT count(*) FROM {schema}.claims WHERE id = '{session}-99'") == 0
    assert count(database, f"SELECT count(*) FROM {schema}.sessions WHERE id = '{session}'") == 0
    taken.release()
