"""redlock-py: a majority of independent servers, asked one after the other. A waiter polls."""

from __future__ import annotations

import time
from typing import NoReturn

import redlock  # type: ignore[import-untyped]

from holdfast.bench.subject import Where
from holdfast.core import urls

PAUSE = 0.2
"""Between two tries: the library's own default."""


class RedlockPyTaker:
    """One caller's lock. The library gives up after three tries; a waiter has to try on."""

    def __init__(self, manager: redlock.Redlock, name: str, ttl: float) -> None:
        self._manager, self._name, self._ttl_ms = manager, name, int(ttl * 1000)

    def acquire(self) -> None:
        while not (found := self._manager.lock(self._name, self._ttl_ms)):
            time.sleep(PAUSE)
        self._held = found

    def release(self) -> None:
        self._manager.unlock(self._held)


class RedlockPyConnection:
    """A manager with a client for each node."""

    def __init__(self, where: Where) -> None:
        nodes = [f"redis://{host}" for host in urls.parse(where.url).hosts]
        self._manager, self._where = redlock.Redlock(nodes), where

    def taker(self, name: str) -> RedlockPyTaker:
        return RedlockPyTaker(self._manager, f"{self._where.namespace}:{name}", self._where.ttl)

    def requests(self) -> None:
        return None

    def close(self) -> None:
        for server in self._manager.servers:
            server.close()


class RedlockPy:
    """redlock-py at the nodes of a redlock:// URL."""

    name = "redlock-py"
    has_tasks = False
    spans_processes = True
    schemes = ("redlock", "redis")

    def __init__(self, where: Where) -> None:
        self.where = where

    def connect(self) -> RedlockPyConnection:
        return RedlockPyConnection(self.where)

    async def connect_tasks(self) -> NoReturn:
        raise NotImplementedError("redlock-py has no lock for asyncio")
