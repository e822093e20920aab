"""etcd3gw: JSON through etcd's gateway, a lease for each acquire. It does not wait; a waiter polls."""

from __future__ import annotations

import time
from typing import Any, NoReturn

import etcd3gw

from holdfast.bench.peers.etcd_v3lock import endpoint
from holdfast.bench.subject import Where

PAUSE = 0.05


class Etcd3GwTaker:
    """One caller's lock, tried until it is there."""

    def __init__(self, client: Any, name: str, ttl: float) -> None:
        self._client, self._name, self._ttl = client, name, int(ttl)

    def acquire(self) -> None:
        self._held = self._client.lock(self._name, ttl=self._ttl)
        while not self._held.acquire():
            time.sleep(PAUSE)

    def release(self) -> None:
        self._held.release()


class Etcd3GwConnection:
    """A client with its pool of HTTP connections."""

    def __init__(self, where: Where) -> None:
        host, _, port = endpoint(where).rpartition(":")
        self._client, self._where = etcd3gw.client(host=host, port=int(port)), where

    def taker(self, name: str) -> Etcd3GwTaker:
        return Etcd3GwTaker(self._client, f"{self._where.namespace}/{name}", self._where.ttl)

    def requests(self) -> None:
        return None

    def close(self) -> None:
        self._client.session.close()


class Etcd3Gw:
    """etcd3gw at an etcd:// URL."""

    name = "etcd3gw"
    has_tasks = False
    spans_processes = True
    schemes = ("etcd",)

    def __init__(self, where: Where) -> None:
        self.where = where

    def connect(self) -> Etcd3GwConnection:
        return Etcd3GwConnection(self.where)

    async def connect_tasks(self) -> NoReturn:
        raise NotImplementedError("etcd3gw has no lock for asyncio")
