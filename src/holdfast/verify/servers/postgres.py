"""A real PostgreSQL."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import psycopg

from holdfast.verify.servers.process import Server, find

_DEBIAN = [f"/usr/lib/postgresql/{version}/bin" for version in range(18, 12, -1)]


QUICK = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}
"""Where nobody pulls a plug, nobody has to wait for a disk."""


def copy(cluster: Path, to: Path) -> None:
    """Copy a cluster that does not run; whose files they are stays the same."""
    subprocess.run([find("cp"), "--archive", str(cluster), str(to)], check=True)


def leave(cluster: Path, at: Path) -> None:
    """Leave a whole copy, or none if another process was faster."""
    made = at.with_name(f"{at.name}-{os.getpid()}")
    copy(cluster, made)
    try:
        made.rename(at)
    except OSError:
        shutil.rmtree(made)


class PostgresServer(Server):
    """A cluster of its own, with durability as it comes unless told; its superuser needs no password."""

    name = "postgres"
    orderly = signal.SIGINT
    """SIGTERM would wait until every client has gone."""
    as_unprivileged = True
    template: ClassVar[Path | None] = None
    """Where the first one that is made leaves a copy for those that follow: to copy takes a tenth of the time."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.settings = {
            "unix_socket_directories": "", "listen_addresses": "127.0.0.1", "max_connections": "200",
            # In its folder: what a kill -9 leaves of it is gone with that.
            "dynamic_shared_memory_type": "mmap", **(settings or {}),
        }  # fmt: skip

    @property
    def url(self) -> str:
        return f"postgresql://holdfast@127.0.0.1:{self.port}/postgres"

    def prepare(self) -> None:
        data = self.folder / "data"
        if self.template is not None and self.template.exists():
            copy(self.template, data)
            return
        self.run_once(
            find("initdb", *_DEBIAN), "-D", str(data), "-U", "holdfast", "-A", "trust", "-E", "UTF8",
            "--no-sync", "--locale", "C.UTF-8",
        )  # fmt: skip
        if self.template is not None:
            leave(data, self.template)

    def command(self) -> list[str]:
        flags = [part for key, value in self.settings.items() for part in ("-c", f"{key}={value}")]
        return [find("postgres", *_DEBIAN), "-D", str(self.folder / "data"), "-p", str(self.port), *flags]

    def close(self) -> None:
        # A kill -9 would leave its shared memory behind.
        if self._process is not None:
            self.stop()
        super().close()

    def is_ready(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True
