"""Any role that may connect may notify any channel. It can neither forge a grant nor stop a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.locks import acquire
from holdfast.model import MAX_TOKEN
from tests.engines.postgres.patience import eventually

Connect = Callable[..., holdfast.Client]
Database = psycopg.Connection[Any]


@pytest.fixture
def stranger(server: Any, database: Database) -> Iterator[Database]:
    """A role with the right to connect, and no other."""
    database.execute("CREATE ROLE stranger LOGIN")
    with psycopg.connect(server.url.replace("holdfast@", "stranger@"), autocommit=True) as connection:
        yield connection
    database.execute("DROP ROLE stranger")


def test_a_role_without_rights_cannot_forge_a_grant(connect: Connect, stranger: Database, schema: str) -> None:
    holder, waiter = connect(ttl=60), connect(ttl=60)
    held = holder.lock("k").acquire()
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(waiter.lock("k").acquire, wait=2.0)
        eventually(lambda: holder.inspect("k").waiters)
        claim = holder.inspect("k").waiters[0].claim
        session = claim.partition("-")[0]
        # All that other clients and people see of it: its session, its claim, and what it listens to nowhere.
        for channel in (session, f"holdfast_{session}", "holdfast", "holdfast_"):
            stranger.execute("SELECT pg_notify(%s, %s)", (channel, f"granted {claim} {MAX_TOKEN}"))
        for hidden in (f"SELECT channel FROM {schema}.sessions", "TABLE pg_stat_get_activity"):
            with pytest.raises(psycopg.Error):
                stranger.execute(hidden.encode())
        assert stranger.execute("SELECT * FROM pg_listening_channels()").fetchall() == []
        with pytest.raises(holdfast.NotAcquired):
            waiting.result(15)
    held.check()
    held.release()


@pytest.mark.parametrize(
    "payload",
    ["", "oops", "granted", "granted x y", "granted  17", f"granted k {MAX_TOKEN + 1}", "gone", "\n", "a" * 7000, "é"],
)
def test_a_notice_that_means_nothing_stops_nobody(
    connect: Connect, database: Database, schema: str, payload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acquire, "FIRST_POLL", 3600.0)
    holder, waiter = connect(ttl=60), connect(ttl=60)
    held = holder.lock("k").acquire()
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(waiter.lock("k").acquire, wait=30.0)
        eventually(lambda: holder.inspect("k").waiters)
        for (channel,) in database.execute(f"SELECT channel FROM {schema}.sessions".encode()).fetchall():
            database.execute("SELECT pg_notify(%s, %s)", (channel, payload))
        held.release()
        granted = waiting.result(15)
        other.submit(granted.release).result()
