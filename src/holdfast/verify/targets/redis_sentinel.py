"""A Redis primary with two replicas, and three sentinels that replace it."""

from __future__ import annotations

from collections.abc import Sequence

import redis

from holdfast.verify.servers.process import Server
from holdfast.verify.servers.redis_deployments import WatchedRedis
from holdfast.verify.target import Address, Target

PATIENCE_MS = 1500
"""How long a primary may say nothing before it is replaced. On a busy machine it would be replaced without a fault."""


class SentinelTarget(Target):
    """Its clients ask the sentinels, and are sent to the primary's own address."""

    name = "redis-sentinel"
    ttl = 3.0
    direct = True

    def make(self) -> list[Server]:
        self.watched = WatchedRedis(PATIENCE_MS)
        return self.watched.servers

    def settle(self) -> None:
        self.watched.start()

    @property
    def addresses(self) -> list[Address]:
        return []

    def url(self, addresses: Sequence[Address]) -> str:
        return self.watched.url

    @property
    def spare(self) -> int:
        return 1

    def leader(self) -> Server | None:
        for sentinel in self.watched.sentinels:
            if not sentinel.running:
                continue
            try:
                host, port = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "holdfast")
            except (redis.ConnectionError, redis.TimeoutError):
                continue
            return next((each for each in self.servers if (each.host, each.port) == (host, int(port))), None)
        return None
