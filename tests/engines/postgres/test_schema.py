"""Versions of the schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.engines.postgres import schema as postgres_schema

Connect = Callable[..., holdfast.Client]


def test_a_newer_schema_is_refused(connect: Connect, database: psycopg.Connection[Any], schema: str) -> None:
    connect().list()
    database.execute(f"UPDATE {schema}.meta SET value = '99' WHERE key = 'version'")

    with pytest.raises(holdfast.EngineUnavailable, match="upgrade Holdfast"):
        connect().list()


def test_an_older_schema_is_brought_up_and_keeps_what_is_held(
    connect: Connect, database: psycopg.Connection[Any], schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = connect().lock("k").acquire()
    read = postgres_schema.read
    monkeypatch.setattr(postgres_schema, "MIGRATIONS", (*postgres_schema.MIGRATIONS, "schema_2.sql"))
    step = "CREATE TABLE extra (id int); UPDATE meta SET value = '2' WHERE key = 'version';"
    monkeypatch.setattr(postgres_schema, "read", lambda name: step if name == "schema_2.sql" else read(name))

    later = connect()

    assert later.lock("k").try_acquire() is None
    assert database.execute(f"SELECT count(*) FROM {schema}.extra").fetchone() == (0,)
    grant.release()


def test_counting_starts_at_the_time_of_creation(
    connect: Connect, database: psycopg.Connection[Any], schema: str
) -> None:
    first = connect().lock("k").acquire()
    first.release()
    database.execute(f"DROP SCHEMA {schema} CASCADE")

    again = connect().lock("k").acquire()

    assert again.token > first.token
    again.release()
