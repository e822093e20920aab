"""One lock server whose store is an etcd."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.verify.servers.etcd import EtcdServer, newer_etcd
from holdfast.verify.servers.lock_cluster import SHORTEST_LEASE
from holdfast.verify.servers.process import wait_until
from tests.servers.lock_server import LockServer

LEASE = 2


class LeadingServer(LockServer):
    """It leads alone, with a shorter lease than users may have."""

    def __init__(self, etcd: EtcdServer, options: str = "") -> None:
        super().__init__(store=f"{etcd.url}?lease={LEASE}{options}")
        self.env[SHORTEST_LEASE] = str(LEASE)

    def command(self) -> list[str]:
        return [*super().command(), "--advertise", f"127.0.0.1:{self.port}"]


@contextmanager
def lock_store_in_etcd(options: str = "") -> Iterator[tuple[EtcdServer, LockServer]]:
    """A new etcd, and a server on it as soon as it leads."""
    with new_etcd() as etcd, leading(etcd, options) as server:
        yield etcd, server


def new_etcd() -> EtcdServer:
    """An empty etcd, not started."""
    return EtcdServer(binary=newer_etcd())


@contextmanager
def leading(etcd: EtcdServer, options: str = "") -> Iterator[LockServer]:
    """A server on this etcd as soon as it leads."""
    with LeadingServer(etcd, options) as server:
        with server.speak() as wire:
            wait_until(lambda: json.loads(wire("HF.CLUSTER"))["role"] == "leader", 60.0, "the server leading")
        yield server
