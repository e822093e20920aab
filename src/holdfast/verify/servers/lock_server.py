"""A real lock server: `holdfast serve` in a process of its own."""

from __future__ import annotations

import sys

from holdfast.verify.servers.process import Server


class LockServer(Server):
    """`holdfast serve`, its store in its own folder unless told otherwise."""

    name = "lock-server"

    def __init__(self, *options: str, store: str = "sqlite:///locks.db") -> None:
        super().__init__()
        self.options, self.store = options, store

    @property
    def url(self) -> str:
        return f"holdfast://{self.host}:{self.port}"

    def command(self) -> list[str]:
        # It is started in its folder: a store may be named relative to that.
        where = ["--listen", f"{self.host}:{self.port}", "--store", self.store]
        return [sys.executable, "-m", "holdfast.cli.main", "serve", *where, "--log-format", "json", *self.options]
