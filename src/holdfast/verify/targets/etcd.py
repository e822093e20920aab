"""An etcd cluster of three."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.verify.servers.etcd import EtcdCluster
from holdfast.verify.servers.process import Server
from holdfast.verify.target import Address, Target


class EtcdTarget(Target):
    """Three members; clients know all of them."""

    name = "etcd"
    scheme = "etcd"
    disk_size = "300m"
    syncs = "fsync,fdatasync"

    def make(self) -> list[Server]:
        self.cluster = EtcdCluster()
        return [*self.cluster.members]

    def settle(self) -> None:
        self.cluster.start()

    def url(self, addresses: Sequence[Address]) -> str:
        return f"{self.scheme}://" + ",".join(f"{host}:{port}" for host, port in addresses)

    def leader(self) -> Server | None:
        return next((member for member in self.cluster.members if member.leads), None)
