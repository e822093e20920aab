"""Holdfast itself as a subject."""

from __future__ import annotations

from holdfast.api import asyncio as task_api
from holdfast.api import blocking as thread_api
from holdfast.bench.counting import Counter
from holdfast.bench.subject import OURS, Where
from holdfast.core import urls


class OurTaker:
    """A lock and the grant that its one caller has."""

    def __init__(self, lock: thread_api.Lock) -> None:
        self._lock = lock

    def acquire(self) -> None:
        self._grant = self._lock.acquire()

    def release(self) -> None:
        self._grant.release()


class OurTaskTaker:
    """The same for a task."""

    def __init__(self, lock: task_api.Lock) -> None:
        self._lock = lock

    async def acquire(self) -> None:
        self._grant = await self._lock.acquire()

    async def release(self) -> None:
        await self._grant.release()


class OurConnection:
    """A client whose requests are counted."""

    def __init__(self, where: Where) -> None:
        self.client = thread_api.connect(where.url, ttl=where.ttl, namespace=where.namespace, app="bench")
        self._counter = Counter()
        self._counter.around_client(self.client._core)

    def taker(self, name: str) -> OurTaker:
        return OurTaker(self.client.lock(name))

    def requests(self) -> int:
        return self._counter.requests

    def close(self) -> None:
        self.client.close()


class OurTaskConnection:
    """A client for tasks."""

    def __init__(self, client: task_api.Client) -> None:
        self._client = client

    def taker(self, name: str) -> OurTaskTaker:
        return OurTaskTaker(self._client.lock(name))

    async def close(self) -> None:
        await self._client.close()


class Ours:
    """Holdfast at a URL."""

    name = OURS
    has_tasks = True
    schemes: tuple[str, ...] = ()

    def __init__(self, where: Where) -> None:
        self.where = where
        self.spans_processes = urls.parse(where.url).scheme != "memory"

    def connect(self) -> OurConnection:
        return OurConnection(self.where)

    async def connect_tasks(self) -> OurTaskConnection:
        where = self.where
        client = await task_api.connect(where.url, ttl=where.ttl, namespace=where.namespace, app="bench")
        return OurTaskConnection(client)
