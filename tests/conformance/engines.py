"""The engines that the suite runs against: how to start each, and how to get a fresh URL from it.

A new engine adds one line to ENGINES. What it cannot do is not written here: the tests read
that from its guarantees.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import LockInfo
from tests.servers.etcd_subjects import etcd, etcd_stands_still
from tests.servers.lock_clusters import SHORTEST_TTL, lock_cluster_stands_still, lock_clusters
from tests.servers.lock_servers import lock_server_stands_still, lock_servers
from tests.servers.postgres_subjects import (
    advisory,
    advisory_backends_end,
    advisory_hangs_up,
    advisory_stands_still,
    postgres,
    postgres_is_blocked,
)
from tests.servers.redis_subjects import cluster, redis, redis_stands_still, rediss, redlock, sentinel, valkey
from tests.servers.zookeeper_subjects import zookeeper, zookeeper_stands_still

FreshUrl = Callable[[], str]
Start = Callable[[Path], AbstractContextManager[FreshUrl]]
Outage = Callable[[str], AbstractContextManager[None]]
TakeAway = Callable[[str, LockInfo], None]

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Subject:
    """One engine under test."""

    name: str
    start: Start
    """Starts what the engine needs, once a run, in a folder; gives what makes fresh URLs."""
    across_processes: bool
    """Whether another process can connect to the same URL."""
    outage: Outage | None
    """Makes the engine at a URL unreachable for a while; None where nothing can come between."""
    lag: float = 0.0
    """By how much longer than a short ttl the engine may take to see that a client is dead."""
    like: str | None = None
    """The engine whose scripts it runs, over connections of another kind."""
    ttl: float = 10.0
    """Of a client that asks for no other; short where a holder hears of a break with its next heartbeat."""
    take_away: TakeAway | None = None
    """Makes those who hold a lock at a URL lose it; needed where there is no record from which it could be broken."""
    hang_up: Callable[[Any], None] | None = None
    """Ends an engine's connections as the end of its process does; needed where they are what proves its life."""


@contextmanager
def memory(_: Path) -> Iterator[FreshUrl]:
    """A table of its own for each test."""
    yield lambda: f"memory://conformance-{next(_numbers)}"


@contextmanager
def sqlite(folder: Path) -> Iterator[FreshUrl]:
    """A file of its own for each test."""
    yield lambda: f"sqlite:///{folder}/{next(_numbers)}.db"


@contextmanager
def sqlite_is_busy(url: str) -> Iterator[None]:
    """Somebody sits inside a transaction on the file, so that no step gets through."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")


ENGINES = (
    Subject("memory", memory, across_processes=False, outage=None),
    Subject("sqlite", sqlite, across_processes=True, outage=sqlite_is_busy),
    Subject("redis", redis, across_processes=True, outage=redis_stands_still),
    Subject("valkey", valkey, across_processes=True, outage=redis_stands_still, like="redis"),
    Subject("rediss", rediss, across_processes=True, outage=redis_stands_still, like="redis"),
    Subject("redis+sentinel", sentinel, across_processes=True, outage=redis_stands_still, like="redis"),
    Subject("redis+cluster", cluster, across_processes=True, outage=redis_stands_still, like="redis"),
    Subject("etcd", etcd, across_processes=True, outage=etcd_stands_still, lag=1.5),
    Subject("holdfast", lock_servers, across_processes=True, outage=lock_server_stands_still),
    Subject(
        "holdfast+cluster",
        lock_clusters,
        across_processes=True,
        outage=lock_cluster_stands_still,
        # No session ends sooner, whatever ttl a test asks for.
        lag=SHORTEST_TTL,
        like="holdfast",
    ),
    Subject("postgresql", postgres, across_processes=True, outage=postgres_is_blocked),
    Subject(
        "postgresql?recipe=advisory",
        advisory,
        across_processes=True,
        outage=advisory_stands_still,
        # A server process that waits for a lock looks once a second whether its client is still there.
        lag=1.0,
        take_away=advisory_backends_end,
        hang_up=advisory_hangs_up,
    ),
    Subject("redlock", redlock, across_processes=True, outage=redis_stands_still, ttl=2.0),
    Subject("zookeeper", zookeeper, across_processes=True, outage=zookeeper_stands_still, lag=1.0),
)

DEPLOYMENTS = {"holdfast+cluster": "holdfast", "valkey": "redis"}
"""Subjects that are another deployment of an engine, and no scheme of their own."""
