"""A real pgbouncer before a PostgreSQL."""

from __future__ import annotations

import os
import signal

from holdfast.verify.servers.postgres import PostgresServer
from holdfast.verify.servers.process import Server, find


class PgBouncerServer(Server):
    """A pool in the mode that is asked for."""

    name = "pgbouncer"
    as_unprivileged = True

    def __init__(self, behind: PostgresServer, mode: str) -> None:
        super().__init__()
        self.behind, self.mode = behind, mode

    @property
    def url(self) -> str:
        return f"postgresql://holdfast@127.0.0.1:{self.port}/postgres"

    def change_mode(self, mode: str) -> None:
        """Pool in another way from now on; what is connected stays so."""
        self.mode = mode
        self.prepare()
        os.kill(self.pid, signal.SIGHUP)

    def prepare(self) -> None:
        (self.folder / "pgbouncer.ini").write_text(
            f"""\
[databases]
postgres = host=127.0.0.1 port={self.behind.port} dbname=postgres user=holdfast
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = any
pool_mode = {self.mode}
default_pool_size = 20
"""
        )

    def command(self) -> list[str]:
        return [find("pgbouncer"), str(self.folder / "pgbouncer.ini")]
