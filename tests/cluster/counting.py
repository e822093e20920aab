"""Processes that count in an SQLite file under a lock of the cluster, and the file.

A worker reads, then writes one more, under the token of its grant: the write is the one that is already under way
when a pause comes, so that no look at the grant can help. The file keeps every write that it took, by token.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import holdfast
from holdfast.errors import HoldfastError
from holdfast.fence import SqlFence
from tests.faults.child import tell
from tests.faults.children import Child

LOCK = "counter"
WAIT = 120.0
PAUSE = 0.01
"""Between two turns of a worker: faults are what this is about, not load."""


class Book:
    """The counter and the log of its writes."""

    def __init__(self, path: Path | str) -> None:
        self.path = str(path)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=30.0)) as connection:
            yield connection

    def create(self) -> None:
        with self._open() as connection:
            SqlFence().create(connection)
            connection.execute("CREATE TABLE counter (value INTEGER NOT NULL)")
            connection.execute("CREATE TABLE writes (number INTEGER PRIMARY KEY, worker INTEGER, token INTEGER)")
            connection.execute("INSERT INTO counter VALUES (0)")
            connection.commit()
            connection.execute("PRAGMA journal_mode = WAL")

    @property
    def value(self) -> int:
        with self._open() as connection:
            return int(connection.execute("SELECT value FROM counter").fetchone()[0])

    def writes(self) -> list[tuple[int, int]]:
        """Every write that was taken, in order: who, and under which token."""
        with self._open() as connection:
            return list(connection.execute("SELECT worker, token FROM writes ORDER BY number"))

    def writers(self, since: int) -> set[int]:
        """Who has written since so many writes."""
        with self._open() as connection:
            return {row[0] for row in connection.execute("SELECT worker FROM writes WHERE number > ?", (since,))}


def increment(connection: sqlite3.Connection, worker: int, token: int, fenced: bool, stop: bool) -> None:
    """One more, in the way that goes wrong when somebody comes between."""
    value = connection.execute("SELECT value FROM counter").fetchone()[0]
    if stop:
        os.kill(os.getpid(), signal.SIGSTOP)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if fenced:
            SqlFence().check(connection, token, resource=LOCK)
        connection.execute("UPDATE counter SET value = ?", (value + 1,))
        connection.execute("INSERT INTO writes (worker, token) VALUES (?, ?)", (worker, token))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def work(url: str, path: str, worker: int, ttl: float, fenced: bool, stop_at: int) -> None:
    """Count until the test says that it is enough; then tell how often, and what went wrong how often."""
    enough = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        enough.set()

    threading.Thread(target=listen, daemon=True).start()
    done, errors = 0, Counter[str]()
    connection = sqlite3.connect(path, timeout=30.0, isolation_level=None)
    with holdfast.connect(url, ttl=ttl, app=f"worker-{worker}") as locks:
        while not enough.is_set():
            try:
                with locks.lock(LOCK, wait=WAIT) as grant:
                    increment(connection, worker, grant.token, fenced, done == stop_at)
                    done += 1
            except HoldfastError as error:
                errors[type(error).__name__] += 1
                if stop_at >= 0:
                    stop_at = -1
            time.sleep(PAUSE)
        tell({"done": done, "errors": errors})


class Worker(Child):
    """The test's side of one."""

    def __init__(
        self, url: str, book: Book, number: int, *, ttl: float, fenced: bool = True, stop_at: int = -1
    ) -> None:
        self.number = number
        super().__init__("tests.cluster.counting:work", url, book.path, number, ttl, fenced, stop_at)

    def finish(self) -> dict[str, int]:
        """Let it end; how often each kind of error came, after what it told of its writes was compared."""
        self.ask("enough")
        told = self.hear(within=WAIT)
        self.done = int(told["done"])
        errors: dict[str, int] = told["errors"]
        return errors
