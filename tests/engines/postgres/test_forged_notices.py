"""Any role that may connect may notify any channel. It can neither forge a grant nor stop a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import sql

import holdfast
from holdfast.locks import acquire
from holdfast.model import MAX_TOKEN
from holdfast.verify.servers.postgres import QUICK, PostgresServer
from tests.engines.postgres.patience import eventually

Connect = Callable[..., holdfast.Client]
Database = psycopg.Connection[Any]


@pytest.fixture
def stranger(server: Any, database: Database) -> Iterator[Database]:
    """A role that may connect, see what all clients run, and do nothing else."""
    database.execute("CREATE ROLE stranger LOGIN")
    database.execute("GRANT pg_monitor TO stranger")
    with psycopg.connect(server.url.replace("holdfast@", "stranger@"), autocommit=True) as connection:
        yield connection
    database.execute("DROP ROLE stranger")


def channels_of(database: Database, schema: str) -> list[str]:
    """Where clients listen, as the texts of their queries show it too."""
    return [channel for (channel,) in database.execute(f"SELECT channel FROM {schema}.sessions".encode())]


def test_a_role_that_sees_all_queries_cannot_forge_a_grant(
    connect: Connect, database: Database, stranger: Database, schema: str
) -> None:
    holder, waiter = connect(ttl=60), connect(ttl=60)
    held = holder.lock("k").acquire()
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(waiter.lock("k").acquire, wait=2.0)
        eventually(lambda: holder.inspect("k").waiters)
        claim = holder.inspect("k").waiters[0].claim
        notice = f"granted {claim} {MAX_TOKEN}"
        for channel in channels_of(database, schema):
            for message in (notice, f"{notice} {'0' * 64}", f"{notice} ", claim, ""):
                stranger.execute("SELECT pg_notify(%s, %s)", (channel, message))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            stranger.execute(f"TABLE {schema}.meta".encode())
        with pytest.raises(holdfast.NotAcquired):
            waiting.result(15)
    held.check()
    held.release()


def test_a_notice_that_is_published_again_grants_nothing(
    connect: Connect, database: Database, stranger: Database, schema: str
) -> None:
    holder, waiter = connect(ttl=60), connect(ttl=60)
    held = holder.lock("k").acquire()
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(waiter.lock("k").acquire, wait=30.0)
        eventually(lambda: holder.inspect("k").waiters)
        for channel in channels_of(database, schema):
            stranger.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        held.release()
        granted = waiting.result(15)
        (heard,) = stranger.notifies(timeout=15, stop_after=1)
        assert heard.payload.startswith("granted ")
        granted.release()
        held = holder.lock("k").acquire(wait=15)
        waiting = other.submit(waiter.lock("k").acquire, wait=2.0)
        eventually(lambda: holder.inspect("k").waiters)
        stranger.execute("SELECT pg_notify(%s, %s)", (heard.channel, heard.payload))
        with pytest.raises(holdfast.NotAcquired):
            waiting.result(15)
    held.check()
    held.release()


def test_no_text_that_the_server_shows_or_logs_has_the_secret() -> None:
    settings = {"log_statement": "all", "log_min_duration_statement": "0", "track_activity_query_size": "1MB"}
    with PostgresServer({**QUICK, **settings}) as server, ThreadPoolExecutor(1) as other:
        with holdfast.connect(server.url) as holder, holdfast.connect(server.url) as waiter:
            held = holder.lock("k").acquire()
            waiting = other.submit(waiter.lock("k").acquire, wait=30.0)
            eventually(lambda: holder.inspect("k").waiters)
            held.release()
            waiting.result(15).release()
            with psycopg.connect(server.url) as database:
                (secret,) = database.execute("SELECT value FROM holdfast.meta WHERE key = 'secret'").fetchone() or ("",)
                shown = [str(query) for (query,) in database.execute("SELECT query FROM pg_stat_activity")]
        logged = server.log.read_text()
    assert "hf_put_session" in logged
    assert len(secret) >= 64
    assert not [text for text in (*shown, logged) if secret in text]


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
        for channel in channels_of(database, schema):
            database.execute("SELECT pg_notify(%s, %s)", (channel, payload))
        held.release()
        granted = waiting.result(15)
        other.submit(granted.release).result()
