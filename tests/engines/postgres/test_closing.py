"""A client that is closed while the server still works on what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import aio
from holdfast.core import names
from holdfast.engines.postgres.schema import lock_class
from holdfast.verify.servers.postgres import PostgresServer
from tests.engines.postgres.patience import soon

Database = psycopg.Connection[Any]
NAME = "k"


@pytest.fixture
def busy(server: PostgresServer, schema: str) -> Iterator[None]:
    """Nothing on this name is answered: somebody's transaction does not end."""
    with psycopg.connect(server.url) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", (lock_class(schema), names.bucket(NAME)))
        yield


async def waiting_for_a_lock(database: Database) -> bool:
    found = database.execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").fetchone()
    return found is not None


async def test_a_client_that_is_closed_in_the_middle_of_a_request_is_in_nobodys_way(
    url: str, busy: None, database: Database
) -> None:
    locks = await aio.connect(url)
    asked = asyncio.create_task(locks.lock(NAME).acquire())
    await soon(lambda: waiting_for_a_lock(database))
    await locks.close()

    # Its sockets have the numbers of those that were closed.
    async with aio.connect(url) as others:
        grant = await others.lock("another").acquire(wait=10.0)
        await grant.release()

    assert asked.done()
    assert isinstance(asked.exception(), holdfast.HoldfastError)
