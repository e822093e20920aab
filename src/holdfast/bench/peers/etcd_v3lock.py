"""etcd's own lock, by its v3lock RPC: the recipe runs inside the server. The key is the lease's."""

from __future__ import annotations

import threading
from typing import Any

import grpc
import grpc.aio

from holdfast.bench.subject import Where
from holdfast.core import urls
from holdfast.engines.etcd.address import parse_address
from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.wire import serialize

NO_PROXY = [("grpc.enable_http_proxy", 0)]
LEASE = 600
"""Seconds. Nobody keeps it alive, so it has to last for the whole run."""

_Lock, _Unlock, _Grant = message("LockRequest"), message("UnlockRequest"), message("LeaseGrantRequest")


class Calls:
    """The three methods, on a channel of either kind."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.lock = channel.unary_unary("/v3lockpb.Lock/Lock", serialize, message("LockResponse").FromString)
        self.unlock = channel.unary_unary("/v3lockpb.Lock/Unlock", serialize, message("UnlockResponse").FromString)
        grants = message("LeaseGrantResponse").FromString
        self.grant = channel.unary_unary("/etcdserverpb.Lease/LeaseGrant", serialize, grants)


class V3Taker:
    """One caller: a lease of its own, because two of one lease would both hold."""

    def __init__(self, connection: V3Connection, name: str) -> None:
        self._connection = connection
        self._lease = connection.calls.grant(_Grant(TTL=LEASE)).ID
        self._name = name.encode()

    def acquire(self) -> None:
        self._connection.count()
        self._key = self._connection.calls.lock(_Lock(name=self._name, lease=self._lease)).key

    def release(self) -> None:
        self._connection.count()
        self._connection.calls.unlock(_Unlock(key=self._key))


class V3Connection:
    """A channel."""

    def __init__(self, where: Where) -> None:
        self._where, self._sent = where, 0
        self._lock = threading.Lock()
        self.calls = Calls(grpc.insecure_channel(endpoint(where), NO_PROXY))

    def count(self) -> None:
        with self._lock:
            self._sent += 1

    def taker(self, name: str) -> V3Taker:
        return V3Taker(self, f"{self._where.namespace}/{name}")

    def requests(self) -> int:
        return self._sent

    def close(self) -> None:
        self.calls.channel.close()


class V3TaskTaker:
    """The same for a task; its lease is made with its first lock."""

    def __init__(self, calls: Calls, name: str) -> None:
        self._calls, self._name, self._lease = calls, name.encode(), 0

    async def acquire(self) -> None:
        if not self._lease:
            self._lease = (await self._calls.grant(_Grant(TTL=LEASE))).ID
        self._key = (await self._calls.lock(_Lock(name=self._name, lease=self._lease))).key

    async def release(self) -> None:
        await self._calls.unlock(_Unlock(key=self._key))


class V3TaskConnection:
    """A channel of a loop."""

    def __init__(self, where: Where) -> None:
        self._where, self._calls = where, Calls(grpc.aio.insecure_channel(endpoint(where), NO_PROXY))

    def taker(self, name: str) -> V3TaskTaker:
        return V3TaskTaker(self._calls, f"{self._where.namespace}/{name}")

    async def close(self) -> None:
        await self._calls.channel.close()


def endpoint(where: Where) -> str:
    """The first member that the URL names."""
    return parse_address(urls.parse(where.url)).endpoints[0]


class V3Lock:
    """v3lock at an etcd:// URL."""

    name = "etcd-v3lock"
    has_tasks = True
    spans_processes = True
    schemes = ("etcd",)

    def __init__(self, where: Where) -> None:
        self.where = where

    def connect(self) -> V3Connection:
        return V3Connection(self.where)

    async def connect_tasks(self) -> V3TaskConnection:
        return V3TaskConnection(self.where)
