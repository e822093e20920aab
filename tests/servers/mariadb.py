"""A real MariaDB."""

from __future__ import annotations

from typing import Any

import pymysql

from holdfast.verify.servers.process import Server, find

_SETUP = """\
CREATE DATABASE IF NOT EXISTS holdfast CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS 'holdfast'@'%' IDENTIFIED BY 'holdfast';
GRANT ALL ON *.* TO 'holdfast'@'%';
"""


class MariaDbServer(Server):
    """An instance of its own with a database and a user, both named holdfast."""

    name = "mariadb"
    as_unprivileged = True

    @property
    def settings(self) -> dict[str, Any]:
        """What `pymysql.connect` takes."""
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "user": "holdfast",
            "password": "holdfast",
            "database": "holdfast",
        }

    @property
    def url(self) -> str:
        return f"mysql+pymysql://holdfast:holdfast@127.0.0.1:{self.port}/holdfast"

    def prepare(self) -> None:
        (self.folder / "setup.sql").write_text(_SETUP)
        self.run_once(
            find("mariadb-install-db"), "--no-defaults", f"--datadir={self.folder / 'data'}", "--skip-test-db",
            "--auth-root-authentication-method=normal", f"--tmpdir={self.folder}",
        )  # fmt: skip

    def command(self) -> list[str]:
        return [
            find("mariadbd"), "--no-defaults", f"--datadir={self.folder / 'data'}", f"--port={self.port}",
            "--bind-address=127.0.0.1", f"--socket={self.folder / 's'}", f"--pid-file={self.folder / 'pid'}",
            f"--init-file={self.folder / 'setup.sql'}", "--skip-name-resolve", "--max-connections=200",
            # One that starts removes all temporary tables that it finds there, those of others included.
            f"--tmpdir={self.folder}",
            # Where nobody pulls a plug, nobody has to wait for a disk.
            "--innodb-flush-log-at-trx-commit=2",
        ]  # fmt: skip

    def is_ready(self) -> bool:
        try:
            pymysql.connect(**self.settings, connect_timeout=2).close()
        except pymysql.err.OperationalError:
            return False
        return True
