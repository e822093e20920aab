"""A real Redis."""

from __future__ import annotations

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast.verify.servers.process import Server, find, wait_until

MANY_DATABASES = ("--databases", "10000")
"""For servers that give each test a database of its own. Redis 8 reserves 3.8 KB per database when it starts."""


class RedisServer(Server):
    """redis-server without persistence, unless told; a cluster of one node if `cluster`; a replica if it `follows`."""

    name = "redis"

    def __init__(self, *options: str, cluster: bool = False, follows: RedisServer | None = None) -> None:
        super().__init__()
        self._options, self._cluster, self._bus_port = options, cluster, self.own_port()
        self._follows = follows

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}/0"

    def command(self) -> list[str]:
        options = ["--save", "", "--appendonly", "no", *self._options]
        if self._follows is not None:
            options += ["--replicaof", f"{self._follows.host} {self._follows.port}"]
        if self._cluster:
            options += ["--cluster-enabled", "yes", "--cluster-announce-ip", self.host]
            options += ["--cluster-port", str(self._bus_port)]
        where = ["--port", str(self.port), "--bind", self.host, "--protected-mode", "no", "--dir", str(self.folder)]
        return [find("redis-server"), *where, *options]

    def is_ready(self) -> bool:
        if not super().is_ready():
            return False
        # One try and a short one: redis-py's own would be a minute on a server that is stopped.
        with redis.Redis(self.host, self.port, socket_timeout=2.0, retry=Retry(NoBackoff(), 0)) as client:
            try:
                client.ping()
            except (redis.ConnectionError, redis.TimeoutError):
                return False
            if self._cluster:
                if self._told(client, "cluster_slots_assigned") == "0":
                    client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
                wait_until(lambda: self._told(client, "cluster_state") == "ok", 20.0, "the cluster being whole")
            return True

    @staticmethod
    def _told(client: redis.Redis, what: str) -> str:
        told = client.execute_command("CLUSTER INFO")  # type: ignore[no-untyped-call]
        return str(told[what])
