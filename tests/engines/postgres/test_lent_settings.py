"""An existing psycopg connection or pool lends its settings."""

from __future__ import annotations

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import holdfast
from holdfast import aio
from holdfast.verify.servers.postgres import PostgresServer


def test_a_pool_lends_its_settings(server: PostgresServer) -> None:
    with ConnectionPool(server.url, kwargs={"application_name": "lender"}, open=False) as pool:
        with holdfast.connect(pool) as locks, locks.lock("lent") as grant, holdfast.connect(server.url) as rival:
            assert grant.token > 0
            assert rival.lock("lent").try_acquire() is None
            assert "127.0.0.1" in str(locks)


async def test_an_asynchronous_pool_lends_its_settings(server: PostgresServer) -> None:
    pool = AsyncConnectionPool(server.url, open=False)
    async with aio.connect(pool) as locks, locks.lock("lent-too") as grant:
        assert grant.token > 0


def test_a_connection_lends_its_settings(server: PostgresServer) -> None:
    with psycopg.connect(server.url) as connection, holdfast.connect(connection) as locks:
        with locks.lock("lent-three") as grant:
            assert grant.token > 0


def test_something_else_is_refused() -> None:
    with pytest.raises(holdfast.InvalidRequest, match="existing client"):
        holdfast.connect(object())
