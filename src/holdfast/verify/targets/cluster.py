"""Three lock servers that are one, and the three members of etcd in which they keep their state."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.verify.servers.lock_cluster import LockCluster
from holdfast.verify.servers.process import Server
from holdfast.verify.target import Address, Target

LEASE = 2
"""Seconds. Shorter than a server takes otherwise: the etcd here elects within one."""


class ClusterTarget(Target):
    """`holdfast serve --store etcd://…`, three times. Any server of the six may be hit, mostly the one that leads.

    Those that do not lead send clients to the one that does, at its own address.
    """

    name = "cluster"
    scheme = "holdfast"
    ttl = 3.0 * LEASE
    lease = float(LEASE)
    direct = True
    disk_size = "300m"
    syncs = "fsync,fdatasync"

    def make(self) -> list[Server]:
        self.cluster = LockCluster(lease=LEASE)
        # The first one's disk is filled and fails: only etcd has any.
        return [*self.cluster.etcd.members, *self.cluster.members]

    def settle(self) -> None:
        self.cluster.start()

    @property
    def addresses(self) -> list[Address]:
        return []

    @property
    def spare(self) -> int:
        return 1

    def url(self, addresses: Sequence[Address]) -> str:
        return self.cluster.url

    def leader(self) -> Server | None:
        return next((member for member in self.cluster.members if member.leads), None)
