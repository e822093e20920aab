"""Holdfast's own lock server, one node, durable."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.verify.servers.lock_server import LockServer
from holdfast.verify.servers.process import Server
from holdfast.verify.target import Address, Target


class ServerTarget(Target):
    """`holdfast serve` on a disk of its own."""

    name = "server"
    scheme = "holdfast"
    disk_size = "64m"
    syncs = "fsync,fdatasync"

    def make(self) -> list[Server]:
        return [LockServer()]

    def url(self, addresses: Sequence[Address]) -> str:
        host, port = addresses[0]
        return f"{self.scheme}://{host}:{port}"
