"""etcd's own lock, by its v3lock RPC: what the tests of its bugs compare with."""

from __future__ import annotations

from typing import Any

import grpc

from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.wire import serialize
from holdfast.verify.servers.etcd import EtcdServer


class V3Lock:
    """The lock recipe that runs inside etcd."""

    def __init__(self, server: EtcdServer) -> None:
        self.channel = grpc.insecure_channel(server.endpoint, [("grpc.enable_http_proxy", 0)])
        self.lock = self.channel.unary_unary("/v3lockpb.Lock/Lock", serialize, message("LockResponse").FromString)
        self.unlock = self.channel.unary_unary("/v3lockpb.Lock/Unlock", serialize, message("UnlockResponse").FromString)
        self._lease = self.channel.unary_unary(
            "/etcdserverpb.Lease/LeaseGrant", serialize, message("LeaseGrantResponse").FromString
        )

    def lease(self, ttl: int) -> int:
        """A lease that nobody keeps alive."""
        number: int = self._lease(message("LeaseGrantRequest")(TTL=ttl), timeout=5.0).ID
        return number

    def take(self, name: str, lease: int, within: float) -> bytes:
        """Wait for the lock; its key."""
        key: bytes = self.lock(message("LockRequest")(name=name.encode(), lease=lease), timeout=within).key
        return key

    def taking(self, name: str, lease: int, within: float) -> Any:
        """The same beside the test: a future."""
        return self.lock.future(message("LockRequest")(name=name.encode(), lease=lease), timeout=within)

    def give(self, key: bytes) -> None:
        """Release it."""
        self.unlock(message("UnlockRequest")(key=key), timeout=5.0)

    def exists(self, key: bytes) -> bool:
        """Whether the key that stands for the lock is there."""
        read = self.channel.unary_unary("/etcdserverpb.KV/Range", serialize, message("RangeResponse").FromString)
        return bool(read(message("RangeRequest")(key=key), timeout=5.0).count)

    def close(self) -> None:
        self.channel.close()
