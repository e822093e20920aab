"""kazoo's Lock: ephemeral sequential nodes, as here, but list and create one after the other, and no token."""

from __future__ import annotations

from typing import Any, NoReturn

from kazoo.client import KazooClient

from holdfast.bench.subject import Where
from holdfast.core import urls


class KazooConnection:
    """A client whose requests are counted where they are written to the socket."""

    def __init__(self, where: Where) -> None:
        url = urls.parse(where.url)
        self._folder = f"/{url.path}/{where.namespace}-kazoo".replace("//", "/")
        self._client = KazooClient(",".join(url.hosts), timeout=where.ttl)
        self._requests = 0
        submit = self._client._connection._submit

        def counted(*args: Any, **options: Any) -> Any:
            self._requests += 1
            return submit(*args, **options)

        self._client._connection._submit = counted
        self._client.start()

    def taker(self, name: str) -> Any:
        return self._client.Lock(f"{self._folder}/{name}")

    def requests(self) -> int:
        return self._requests

    def close(self) -> None:
        self._client.stop()
        self._client.close()


class KazooLock:
    """kazoo at a zookeeper:// URL."""

    name = "kazoo"
    has_tasks = False
    spans_processes = True
    schemes = ("zookeeper",)

    def __init__(self, where: Where) -> None:
        self.where = where

    def connect(self) -> KazooConnection:
        return KazooConnection(self.where)

    async def connect_tasks(self) -> NoReturn:
        raise NotImplementedError("kazoo has no lock for asyncio")
