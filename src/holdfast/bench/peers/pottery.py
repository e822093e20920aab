"""pottery's Redlock: a majority of independent servers, asked by threads. A waiter polls."""

from __future__ import annotations

import redis
import redis.asyncio
from pottery import AIORedlock, Redlock

from holdfast.bench.subject import Where
from holdfast.core import urls


class PotteryConnection:
    """A client for each node."""

    def __init__(self, where: Where) -> None:
        hosts = urls.parse(where.url).hosts
        self._nodes, self._where = {redis.Redis.from_url(f"redis://{host}") for host in hosts}, where

    def taker(self, name: str) -> Redlock:
        return Redlock(key=f"{self._where.namespace}:{name}", masters=self._nodes, auto_release_time=self._where.ttl)

    def requests(self) -> None:
        return None

    def close(self) -> None:
        for node in self._nodes:
            node.close()


class PotteryTaskConnection:
    """The same for tasks."""

    def __init__(self, where: Where) -> None:
        hosts = urls.parse(where.url).hosts
        self._nodes, self._where = {redis.asyncio.Redis.from_url(f"redis://{host}") for host in hosts}, where

    def taker(self, name: str) -> AIORedlock:
        return AIORedlock(key=f"{self._where.namespace}:{name}", masters=self._nodes, auto_release_time=self._where.ttl)

    async def close(self) -> None:
        for node in self._nodes:
            await node.aclose()


class Pottery:
    """pottery at the nodes of a redlock:// URL."""

    name = "pottery"
    has_tasks = True
    spans_processes = True
    schemes = ("redlock", "redis")

    def __init__(self, where: Where) -> None:
        self.where = where

    def connect(self) -> PotteryConnection:
        return PotteryConnection(self.where)

    async def connect_tasks(self) -> PotteryTaskConnection:
        return PotteryTaskConnection(self.where)
