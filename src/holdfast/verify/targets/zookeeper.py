"""Three ZooKeeper servers, durable as they come."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.verify.servers.process import Server
from holdfast.verify.servers.zookeeper import ZooKeeperServer, members
from holdfast.verify.target import Address, Target


class ZooKeeperTarget(Target):
    """An ensemble of three: any one of them may be away."""

    name = "zookeeper"
    ttl = 3.0
    syncs = "fsync,fdatasync"

    def make(self) -> list[Server]:
        return list(members(3))

    def settle(self) -> None:
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_ready()

    def url(self, addresses: Sequence[Address]) -> str:
        return "zookeeper://" + ",".join(f"{host}:{port}" for host, port in addresses) + "/verify"

    def leader(self) -> Server | None:
        running = [server for server in self.servers if server.running]
        return next((each for each in running if isinstance(each, ZooKeeperServer) and each.leads), None)
