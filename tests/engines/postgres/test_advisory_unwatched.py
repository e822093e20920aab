"""Advisory locks, asyncio: a connection that the loop cannot watch any more is given up, and its claim withdrawn."""

from __future__ import annotations

import asyncio
import os
import select
import selectors
from contextlib import suppress
from typing import Any

import psycopg

from holdfast import aio
from holdfast.verify.servers.postgres import PostgresServer
from tests.conformance.stage import eventually


def test_a_wait_on_a_connection_that_cannot_be_watched_is_withdrawn(
    server: PostgresServer, schema: str, database: psycopg.Connection[Any]
) -> None:
    """As after an interrupt between the system's list of watched descriptors and the loop's."""
    selector = selectors.EpollSelector()
    url = f"{server.url}?recipe=advisory&application_name={schema}"
    waiters = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"

    async def main() -> None:
        async with aio.connect(url, namespace=schema) as locks, aio.connect(url, namespace=schema) as rival:
            held = await rival.lock("k").acquire()
            waiting = asyncio.create_task(locks.lock("k").acquire(wait=10.0))
            holdings: Any = locks._core.verbs.holdings  # type: ignore[attr-defined]
            await eventually(lambda: bool(holdings.taken))
            (taken,) = holdings.taken.values()
            wire = taken.bound.wire
            await eventually(lambda: wire.busy and wire.descriptor not in selector.get_map())
            with select.epoll.fromfd(os.dup(selector.fileno())) as epoll:
                epoll.register(wire.descriptor, select.EPOLLIN)
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting

            assert not wire.alive
            await eventually(lambda: database.execute(waiters).fetchall() == [(0,)])
            await held.release()
            async with locks.lock("k", wait=2.0) as grant:
                assert grant.valid

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(main())
