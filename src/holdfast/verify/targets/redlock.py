"""Five Redis servers that know nothing of each other."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.verify.servers.process import Server
from holdfast.verify.servers.redis import RedisServer
from holdfast.verify.target import Address, Target
from holdfast.verify.targets.redis import DURABLE

NODES = 5


class RedlockTarget(Target):
    """A majority of independent servers, each of which writes everything down before it answers."""

    name = "redlock"
    scheme = "redlock"
    disk_size = "24m"
    syncs = "fsync,fdatasync"
    talks = False

    def make(self) -> list[Server]:
        return [RedisServer(*DURABLE) for _ in range(NODES)]

    def url(self, addresses: Sequence[Address]) -> str:
        return f"{self.scheme}://" + ",".join(f"{host}:{port}" for host, port in addresses) + "/0"
