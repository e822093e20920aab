"""Redis as the conformance suite sees it: a fresh URL for each test, and servers that stand still for a while."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from holdfast.verify.servers.process import Server
from holdfast.verify.servers.redis import MANY_DATABASES, RedisServer
from holdfast.verify.servers.redis_deployments import RedisCluster, TlsRedis, WatchedRedis
from tests.servers.valkey import ValkeyServer

_numbers = itertools.count(1)
_running: dict[str, Sequence[Server]] = {}
"""By what its URLs start with: the servers without which nothing goes on."""


@contextmanager
def _known(start: str, servers: Sequence[Server]) -> Iterator[None]:
    _running[start] = servers
    yield
    del _running[start]


@contextmanager
def redis(_: Path) -> Iterator[Callable[[], str]]:
    """One server; a database of its own for each test."""
    with RedisServer(*MANY_DATABASES) as server:
        start = f"redis://127.0.0.1:{server.port}/"
        with _known(start, [server]):
            yield lambda: f"{start}{next(_numbers)}"


@contextmanager
def valkey(_: Path) -> Iterator[Callable[[], str]]:
    """The same on Valkey."""
    with ValkeyServer(*MANY_DATABASES) as server:
        start = f"redis://127.0.0.1:{server.port}/"
        with _known(start, [server]):
            yield lambda: f"{start}{next(_numbers)}"


@contextmanager
def rediss(_: Path) -> Iterator[Callable[[], str]]:
    """The same behind TLS."""
    with TlsRedis() as server, _known(f"rediss://127.0.0.1:{server.port}/", [server]):
        yield lambda: server.url(next(_numbers))


@contextmanager
def sentinel(_: Path) -> Iterator[Callable[[], str]]:
    """One primary, two replicas, three sentinels that are slow to act: an outage here is not to be a failover."""
    with WatchedRedis(down_after_ms=120_000) as watched, _known(watched.url, [watched.primary]):
        yield lambda: f"{watched.url}?db={next(_numbers)}"


@contextmanager
def cluster(_: Path) -> Iterator[Callable[[], str]]:
    """Three nodes. A cluster has one database, so each test finds it emptied."""
    with RedisCluster() as nodes, _known(nodes.url, nodes.nodes):

        def emptied() -> str:
            for node in nodes.nodes:
                nodes.tell(node, "FLUSHALL")
            return nodes.url

        yield emptied


@contextmanager
def redlock(_: Path) -> Iterator[Callable[[], str]]:
    """Five servers that know nothing of each other; a database of its own for each test."""
    with ExitStack() as stack:
        servers = [stack.enter_context(RedisServer(*MANY_DATABASES)) for _ in range(5)]
        start = "redlock://" + ",".join(f"127.0.0.1:{server.port}" for server in servers) + "/"
        # Three of five are a majority.
        stack.enter_context(_known(start, servers[:3]))
        yield lambda: f"{start}{next(_numbers)}"


@contextmanager
def redis_stands_still(url: str) -> Iterator[None]:
    """The servers are stopped: connections stay open, nothing is answered."""
    (servers,) = [servers for start, servers in _running.items() if url.startswith(start)]
    for server in servers:
        server.pause()
    try:
        yield
    finally:
        for server in servers:
            server.resume()
