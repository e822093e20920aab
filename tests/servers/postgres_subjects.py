"""PostgreSQL as the conformance suite needs it: a schema for each test, and an outage of that schema."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql

import holdfast
from holdfast.verify.servers.postgres import PostgresServer

_numbers = itertools.count(1)
TABLES = ("sessions", "claims", "cells", "watches", "tombstones", "counters")


@contextmanager
def postgres(_: Path) -> Iterator[Callable[[], str]]:
    """One server for the run, a schema of its own for each test."""
    with PostgresServer() as server:
        yield lambda: f"{server.url}?schema=test_{next(_numbers)}"


@contextmanager
def postgres_is_blocked(url: str) -> Iterator[None]:
    """Somebody has locked the tables, so that no step gets through, not even one that only reads."""
    address, _, schema = url.partition("?schema=")
    with holdfast.connect(url) as locks:
        locks.inspect("k")  # makes the schema, if nobody has been there
    with psycopg.connect(address) as connection:
        for table in TABLES:
            connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(sql.Identifier(schema, table)))
        yield
        connection.rollback()
