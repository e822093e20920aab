"""Three lock servers on three etcd nodes."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.verify.servers.lock_cluster import LockCluster
from holdfast.verify.servers.process import Server
from holdfast.verify.target import Address, Target


class ClusterTarget(Target):
    """Any one of the six may be away, the server that leads and etcd's leader too."""

    name = "cluster"
    scheme = "holdfast"
    lease = 1
    """With the shortest that users may have, a run would see three or four takeovers a minute."""
    ttl = 3.0
    disk_size = "300m"
    syncs = "fsync,fdatasync"
    spare = 1

    def make(self) -> list[Server]:
        self.cluster = LockCluster(lease=self.lease)
        # The first one's disk is filled and fails: only etcd has any.
        return [*self.cluster.etcd.members, *self.cluster.members]

    def settle(self) -> None:
        self.cluster.start()

    @property
    def addresses(self) -> list[Address]:
        return [(server.host, server.port) for server in self.cluster.members]

    def url(self, addresses: Sequence[Address]) -> str:
        return f"{self.scheme}://" + ",".join(f"{host}:{port}" for host, port in addresses)

    def leader(self) -> Server | None:
        return next((member for member in self.cluster.members if member.leads), None)
