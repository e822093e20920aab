"""One Redis that writes everything down before it answers."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.verify.servers.process import Server
from holdfast.verify.servers.redis import RedisServer
from holdfast.verify.target import Address, Target

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
"""The most that a Redis can promise of a restart."""


class RedisTarget(Target):
    """The best case of one server: what a restart without persistence does is known without a test."""

    name = "redis"
    scheme = "redis"
    disk_size = "24m"
    syncs = "fsync,fdatasync"
    options: tuple[str, ...] = DURABLE

    def make(self) -> list[Server]:
        return [RedisServer(*self.options)]

    def url(self, addresses: Sequence[Address]) -> str:
        host, port = addresses[0]
        return f"{self.scheme}://{host}:{port}/0"
