"""One PostgreSQL, durable as it comes."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.verify.servers.postgres import PostgresServer
from holdfast.verify.servers.process import Server
from holdfast.verify.target import Address, Target


class PostgresTarget(Target):
    """The lock table in a database."""

    name = "postgresql"
    scheme = "postgresql"
    disk_size = "128m"
    syncs = "fsync,fdatasync"

    def make(self) -> list[Server]:
        return [PostgresServer()]

    def url(self, addresses: Sequence[Address]) -> str:
        host, port = addresses[0]
        return f"{self.scheme}://holdfast@{host}:{port}/postgres"
