"""Real lock servers that are one: several `holdfast serve` on an etcd cluster."""

from __future__ import annotations

from typing import Any, Self

from holdfast.engines.holdfast.cluster import Answer, ask
from holdfast.engines.holdfast.route import Route
from holdfast.engines.resp.wire import Address
from holdfast.verify.servers.etcd import EtcdCluster
from holdfast.verify.servers.lock_server import LockServer
from holdfast.verify.servers.process import wait_until

LEASE = 5
SHORTEST_LEASE = "HOLDFAST_SHORTEST_LEASE"
"""The variable by which a server takes a shorter lease than users may have: only for tests, which have no time."""


class ClusterServer(LockServer):
    """One of them. Where etcd is, is looked up at each start: a network may have moved it."""

    def __init__(self, etcd: EtcdCluster, *options: str, lease: int = LEASE, store_options: str = "") -> None:
        super().__init__(*options)
        self.etcd, self.lease, self.store_options = etcd, lease, store_options
        self.http_port = self.own_port()
        if lease < LEASE:
            self.env[SHORTEST_LEASE] = str(lease)

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)

    def command(self) -> list[str]:
        self.store = f"{self.etcd.url}?lease={self.lease}{self.store_options}"
        here = ["--advertise", str(self.address), "--http", f"{self.host}:{self.http_port}"]
        # In a network namespace of its own it has an address that is not loopback.
        return [*super().command(), *here, "--insecure"]

    def is_ready(self) -> bool:
        return not self.asked().problem

    def asked(self, within: float = 1.0) -> Answer:
        """What it says of the cluster."""
        return ask(Route((self.address,)), self.address, within)

    @property
    def status(self) -> dict[str, Any]:
        """The same, as data; empty if it says nothing."""
        return self.asked().status

    @property
    def leads(self) -> bool:
        """Whether it says of itself that it leads; False too if it says nothing."""
        return self.running and self.asked().leads


class LockCluster:
    """Three lock servers on three etcd members, unless told."""

    def __init__(
        self,
        *options: str,
        count: int = 3,
        lease: int = LEASE,
        store_options: str = "",
        etcd: EtcdCluster | None = None,
    ) -> None:
        self.etcd = EtcdCluster() if etcd is None else etcd
        self._own_etcd = etcd is None
        self.lease = lease
        self.members = [
            ClusterServer(self.etcd, *options, lease=lease, store_options=store_options) for _ in range(count)
        ]

    @property
    def url(self) -> str:
        return "holdfast://" + ",".join(str(member.address) for member in self.members)

    def leader(self, within: float = 60.0) -> ClusterServer:
        """Who leads now, as it says itself."""
        found: list[ClusterServer] = []

        def one_leads() -> bool:
            found[:] = [member for member in self.members if member.leads]
            return len(found) == 1

        wait_until(one_leads, within, "a lock server leading")
        return found[0]

    def followers(self) -> list[ClusterServer]:
        """The other servers that run."""
        leader = self.leader()
        return [member for member in self.members if member is not leader and member.running]

    def start(self) -> None:
        """Start etcd, if it is this cluster's own, then the servers, and wait until one leads."""
        if self._own_etcd:
            self.etcd.start()
        for member in self.members:
            member.launch()
        for member in self.members:
            member.wait_ready()
        self.leader()

    def close(self) -> None:
        """End all of it."""
        for member in self.members:
            member.close()
        if self._own_etcd:
            self.etcd.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
