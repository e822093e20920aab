"""redis-py's `Lock`: set-if-absent with expiry. It has no line and no token; a waiter polls every 100 ms."""

from __future__ import annotations

import redis
import redis.asyncio
import redis.asyncio.lock
import redis.lock

from holdfast.bench.subject import Where


class RedisPyConnection:
    """A client with its pool."""

    def __init__(self, where: Where) -> None:
        self._client, self._where = redis.Redis.from_url(where.url), where

    def taker(self, name: str) -> redis.lock.Lock:
        # Every caller has its own object, because the object is what holds.
        return redis.lock.Lock(self._client, f"{self._where.namespace}:{name}", timeout=self._where.ttl)

    def requests(self) -> None:
        return None

    def close(self) -> None:
        self._client.close()


class RedisPyTaskConnection:
    """The same for tasks."""

    def __init__(self, where: Where) -> None:
        self._client, self._where = redis.asyncio.Redis.from_url(where.url), where

    def taker(self, name: str) -> redis.asyncio.lock.Lock:
        return self._client.lock(f"{self._where.namespace}:{name}", timeout=self._where.ttl)

    async def close(self) -> None:
        await self._client.aclose()


class RedisPy:
    """redis-py at a redis:// URL."""

    name = "redis-py"
    has_tasks = True
    spans_processes = True
    schemes = ("redis", "rediss")

    def __init__(self, where: Where) -> None:
        self.where = where

    def connect(self) -> RedisPyConnection:
        return RedisPyConnection(self.where)

    async def connect_tasks(self) -> RedisPyTaskConnection:
        return RedisPyTaskConnection(self.where)
