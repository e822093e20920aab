"""A PostgreSQL that follows another by streaming replication."""

from __future__ import annotations

import psycopg

from holdfast.verify.servers.postgres import _DEBIAN, PostgresServer
from holdfast.verify.servers.process import find


class PostgresReplica(PostgresServer):
    """A copy of a running server, which goes on copying."""

    name = "postgres-replica"

    def __init__(self, primary: PostgresServer) -> None:
        super().__init__()
        self.primary = primary

    def prepare(self) -> None:
        self.run_once(
            find("pg_basebackup", *_DEBIAN), "--pgdata", str(self.folder / "data"), "--dbname", self.primary.url,
            "--write-recovery-conf", "--checkpoint", "fast", "--no-sync",
        )  # fmt: skip

    def promote(self) -> None:
        """Make it the one that takes writes."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")
