"""ZooKeeper for tests: the verifier's, without waiting for a disk."""

from __future__ import annotations

from holdfast.verify.servers import zookeeper
from holdfast.verify.servers.zookeeper import QUICK, Ensemble

__all__ = ["Ensemble", "ZooKeeperServer"]


class ZooKeeperServer(zookeeper.ZooKeeperServer):
    """One server alone."""

    def __init__(self, *settings: str) -> None:
        super().__init__(*settings, flags=[QUICK])
