"""python-redis-lock: set-if-absent with expiry, and a blocking list pop to wait on. It has no line and no token."""

from __future__ import annotations

from typing import NoReturn

import redis
import redis_lock  # type: ignore[import-untyped]

from holdfast.bench.subject import Where


class PythonRedisLockConnection:
    """A client with its pool."""

    def __init__(self, where: Where) -> None:
        self._client, self._where = redis.Redis.from_url(where.url), where

    def taker(self, name: str) -> redis_lock.Lock:
        # Renewal would be a thread a lock; no hold here lasts that long.
        return redis_lock.Lock(self._client, f"{self._where.namespace}:{name}", expire=int(self._where.ttl) or 1)

    def requests(self) -> None:
        return None

    def close(self) -> None:
        self._client.close()


class PythonRedisLock:
    """python-redis-lock at a redis:// URL."""

    name = "python-redis-lock"
    has_tasks = False
    spans_processes = True
    schemes = ("redis", "rediss")

    def __init__(self, where: Where) -> None:
        self.where = where

    def connect(self) -> PythonRedisLockConnection:
        return PythonRedisLockConnection(self.where)

    async def connect_tasks(self) -> NoReturn:
        raise NotImplementedError("python-redis-lock has no lock for asyncio")
