"""PostgreSQL as the conformance suite needs it: an empty schema for each test, and an outage of that schema."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql

import holdfast
from holdfast import LockInfo
from holdfast.engines.advisory.engine import AdvisoryEngine
from holdfast.engines.postgres.schema import ddl
from holdfast.verify.servers.postgres import QUICK, PostgresServer

TABLES = ("sessions", "claims", "cells", "watches", "letters", "tombstones", "counters")
SCHEMAS, DATABASES = 8, 4
"""In turn, so that what a test has left behind has ended when its schema or database is used again."""
_running: dict[str, PostgresServer] = {}
"""By URL."""


@contextmanager
def postgres(_: Path) -> Iterator[Callable[[], str]]:
    """One server for the run; each test finds a schema emptied: to make one takes longer than a test."""
    with PostgresServer(QUICK) as server, psycopg.connect(server.url, autocommit=True) as connection:
        turns = itertools.count()

        def emptied() -> str:
            turn = next(turns)
            schema = f"test_{turn % SCHEMAS}"
            if turn < SCHEMAS:
                connection.execute(ddl(schema))
            else:
                # The counters stay: tokens never go back.
                deletes = [f"DELETE FROM {schema}.{table};" for table in TABLES if table != "counters"]
                connection.execute("".join(deletes))
            return f"{server.url}?schema={schema}"

        yield emptied


@contextmanager
def advisory(_: Path) -> Iterator[Callable[[], str]]:
    """One server for the run. Databases do not see each other's advisory locks: tests use some of them in turn."""
    # Nobody has to wait for a second until the server looks for a deadlock.
    settings = {**QUICK, "deadlock_timeout": "100ms"}
    with PostgresServer(settings) as server, psycopg.connect(server.url, autocommit=True) as connection:
        turns = itertools.count()
        urls: list[str] = []

        def another() -> str:
            turn = next(turns)
            if turn < DATABASES:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(f"test_{turn}")))
                url = server.url.rpartition("/")[0] + f"/test_{turn}?recipe=advisory"
                urls.append(url)
                _running[url] = server
            return urls[turn % DATABASES]

        yield another
        for url in urls:
            del _running[url]


@contextmanager
def advisory_stands_still(url: str) -> Iterator[None]:
    """Every process of the server is stopped: connections stay open, nothing is answered."""
    server = _running[url]
    server.pause()
    try:
        yield
    finally:
        server.resume()


def advisory_backends_end(url: str, info: LockInfo) -> None:
    """End the server processes that hold a lock."""
    with psycopg.connect(_running[url].url, autocommit=True) as connection:
        for holder in info.holders:
            connection.execute("SELECT pg_terminate_backend(%s)", (holder.pid,))


def advisory_hangs_up(engine: AdvisoryEngine) -> None:
    """Close every connection without a word, as the end of the process would."""
    for wire in engine._holdings.watchable():
        with socket.socket(fileno=os.dup(wire.descriptor)) as copy:
            copy.shutdown(socket.SHUT_RDWR)


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
