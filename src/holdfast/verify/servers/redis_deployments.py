"""Redis as people run it: behind sentinels, as a cluster, behind TLS."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from holdfast.verify.servers.process import Server, find, free_port, wait_until
from holdfast.verify.servers.redis import MANY_DATABASES, RedisServer


class Sentinel(Server):
    """One sentinel that watches one primary."""

    name = "sentinel"

    def __init__(self, primary: RedisServer, down_after_ms: int) -> None:
        super().__init__()
        self._primary, self._down_after_ms = primary, down_after_ms

    def prepare(self) -> None:
        lines = [
            f"port {self.port}",
            f"bind {self.host}",
            "protected-mode no",
            f"sentinel monitor holdfast {self._primary.host} {self._primary.port} 2",
            f"sentinel down-after-milliseconds holdfast {self._down_after_ms}",
            "sentinel failover-timeout holdfast 2000",
            "sentinel parallel-syncs holdfast 2",
        ]
        (self.folder / "sentinel.conf").write_text("\n".join(lines) + "\n")

    def command(self) -> list[str]:
        return [find("redis-server"), str(self.folder / "sentinel.conf"), "--sentinel"]

    def ask(self, *words: str) -> Any:
        with redis.Redis(self.host, self.port, decode_responses=True) as client:
            return client.execute_command(*words)


class WatchedRedis:
    """One primary with two replicas and three sentinels."""

    def __init__(self, down_after_ms: int = 500) -> None:
        options = (*MANY_DATABASES, "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
        self.primary = RedisServer(*options)
        self.replicas = [RedisServer(*options, follows=self.primary) for _ in range(2)]
        self.sentinels = [Sentinel(self.primary, down_after_ms) for _ in range(3)]

    @property
    def servers(self) -> list[Server]:
        return [self.primary, *self.replicas, *self.sentinels]

    @property
    def url(self) -> str:
        hosts = ",".join(f"{sentinel.host}:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/holdfast"

    def start(self) -> None:
        """Start all of them, and wait until each knows of the others."""
        for server in self.servers:
            server.start()
        wait_until(self._complete, 90.0, "replicas and sentinels knowing of each other")

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def _complete(self) -> bool:
        try:
            return self._all_known()
        except redis.RedisError:
            return False  # one of them is still busy with its start

    def _all_known(self) -> bool:
        with redis.Redis(self.primary.host, self.primary.port) as client:
            info: Any = client.info("replication")
            online = sum(info.get(f"slave{number}", {}).get("state") == "online" for number in range(2))
        return online == 2 and all(
            len(sentinel.ask("SENTINEL", "SENTINELS", "holdfast")) == 2
            and len(sentinel.ask("SENTINEL", "REPLICAS", "holdfast")) == 2
            for sentinel in self.sentinels
        )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for server in self.servers:
            server.close()


class RedisCluster:
    """Three nodes that share the slots."""

    def __init__(self) -> None:
        options = ("--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--cluster-node-timeout", "2000")
        self.nodes = [RedisServer(*options, "--cluster-port", str(free_port())) for _ in range(3)]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                node.start()
            bounds = [0, 5461, 10923, 16384]
            for number, node in enumerate(self.nodes):
                first, last = bounds[number], bounds[number + 1] - 1
                self.tell(node, "CLUSTER", "ADDSLOTSRANGE", str(first), str(last))
                self.tell(node, "CLUSTER", "MEET", "127.0.0.1", str(self.nodes[0].port), self._bus(self.nodes[0]))
            wait_until(lambda: all(map(self._whole, self.nodes)), 30.0, "the cluster being whole")
        except BaseException:
            self.close()
            raise
        return self

    def _whole(self, node: RedisServer) -> bool:
        told = str(self.tell(node, "CLUSTER", "INFO"))
        return "cluster_state:ok" in told and "cluster_known_nodes:3" in told

    def _bus(self, node: RedisServer) -> str:
        """Where nodes talk to each other: by default 10,000 above the port, which may be no port at all."""
        with redis.Redis(port=node.port, decode_responses=True) as client:
            return str(client.config_get("cluster-port")["cluster-port"])

    @staticmethod
    def tell(node: RedisServer, *words: str) -> Any:
        with redis.Redis(port=node.port, decode_responses=True) as client:
            return client.execute_command(*words)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for node in self.nodes:
            node.close()


class TlsRedis(Server):
    """A server that speaks TLS only, with a certificate of its own."""

    name = "redis-tls"

    def prepare(self) -> None:
        subprocess.run(
            [
                find("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout",
                "key.pem", "-out", "cert.pem",
            ],
            cwd=self.folder,
            check=True,
            capture_output=True,
        )  # fmt: skip

    @property
    def certificate(self) -> Path:
        return self.folder / "cert.pem"

    def command(self) -> list[str]:
        return [
            find("redis-server"), "--port", "0", "--tls-port", str(self.port), "--bind", "127.0.0.1", "--dir",
            str(self.folder), "--save", "", *MANY_DATABASES, "--tls-cert-file", str(self.certificate),
            "--tls-key-file", str(self.folder / "key.pem"), "--tls-auth-clients", "no",
            "--tls-ca-cert-file", str(self.certificate),
        ]  # fmt: skip

    def url(self, database: int = 0) -> str:
        return f"rediss://127.0.0.1:{self.port}/{database}?ca={self.certificate}"
