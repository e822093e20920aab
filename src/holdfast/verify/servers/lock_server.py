"""A real lock server: `holdfast serve` in a process of its own."""

from __future__ import annotations

import sys

from holdfast.verify.servers import time_of_day
from holdfast.verify.servers.process import Server


class LockServer(Server):
    """`holdfast serve`, its store in its own folder unless told otherwise."""

    name = "lock-server"

    def __init__(self, *options: str, store: str = "sqlite:///locks.db") -> None:
        super().__init__()
        self.options, self.store = options, store
        self.settable = False
        """Whether its time of day can be set while it runs; decided before it is started."""

    @property
    def url(self) -> str:
        return f"holdfast://{self.host}:{self.port}"

    def jump(self, seconds: float) -> None:
        """Set its time of day so many seconds ahead of the machine's."""
        assert self.settable
        time_of_day.set_ahead(self.folder / "clock", seconds)

    @property
    def program(self) -> list[str]:
        """What takes the command line's arguments."""
        if not self.settable:
            return ["holdfast.cli.main"]
        self.jump(0.0)
        return [time_of_day.__name__, str(self.folder / "clock")]

    def command(self) -> list[str]:
        # It is started in its folder: a store may be named relative to that.
        where = ["--listen", f"{self.host}:{self.port}", "--store", self.store]
        return [sys.executable, "-m", *self.program, "serve", *where, "--log-format", "json", *self.options]
