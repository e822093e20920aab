"""ZooKeeper as the conformance suite sees it: a chroot of its own for each test, and a server that stands still."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.zookeeper import ZooKeeperServer

_numbers = itertools.count(1)
_running: dict[str, ZooKeeperServer] = {}
"""By the start of its URLs."""


@contextmanager
def zookeeper(_: Path) -> Iterator[Callable[[], str]]:
    """One server for the run."""
    with ZooKeeperServer() as server:
        _running[server.url] = server
        yield lambda: f"{server.url}/test-{next(_numbers)}"
        del _running[server.url]


@contextmanager
def zookeeper_stands_still(url: str) -> Iterator[None]:
    """The server is stopped: connections stay open, nothing is answered."""
    server = _running[url.rpartition("/")[0]]
    server.pause()
    try:
        yield
    finally:
        server.resume()
