"""What is verified: how it is started, how clients reach it, and what can be done to it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar, Self

from holdfast.verify import network
from holdfast.verify.disks import SmallDisk, small_disk
from holdfast.verify.network import Network
from holdfast.verify.refusal import NotAllowed
from holdfast.verify.servers.lock_server import LockServer
from holdfast.verify.servers.process import Server

Address = tuple[str, int]


class Target:
    """One deployment. A new one is a file in `targets/` and a row in its table.

    `start` makes the servers, and with them whatever the faults of this run need: a network in
    which they can be cut off, a disk that can be filled. What this machine refuses is in `refused`.
    """

    name: ClassVar[str]
    ttl: ClassVar[float] = 2.0
    """Of the clients' sessions in this run."""
    lease: ClassVar[float | None] = None
    """After how many seconds its servers give each other up, if that is not about a session's ttl."""
    disk_size: ClassVar[str] = ""
    """How large a disk to fill is for the first server; empty: nothing of it lies on a disk."""
    syncs: ClassVar[str] = ""
    """The system calls by which its first server makes things durable."""

    direct: ClassVar[bool] = False
    """Whether its servers send clients to their own addresses: then no proxy can stand before them."""
    talks: ClassVar[bool] = True
    """Whether its servers speak with each other; where they do not, only clients can be cut off from them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: list[Server] = []
        """What can be killed, paused and restarted."""
        self.network: Network | None = None
        self.disk: SmallDisk | None = None
        self.client_prefix: list[str] = []
        """What a client has to be started with to reach it."""
        self.refused: dict[str, str] = {}
        """What the machine did not allow, and why: `network`, `disk`. It is reported."""
        self._open = ExitStack()

    def make(self) -> list[Server]:
        """The servers, not started."""
        return []

    def settle(self) -> None:
        """Start them, and wait until they are one deployment."""
        for server in self.servers:
            server.start()

    @property
    def addresses(self) -> list[Address]:
        """Where clients connect to; a proxy can stand before each."""
        return [(server.host, server.port) for server in self.servers]

    def url(self, addresses: Sequence[Address]) -> str:
        """The URL by which a client comes in through these addresses."""
        raise NotImplementedError

    def leader(self) -> Server | None:
        """The server on which the others depend now; None if all are alike, or nobody leads."""
        return None

    @property
    def shown(self) -> str:
        """As people call it, without secrets."""
        return self.name

    @property
    def spare(self) -> int:
        """How many servers may be away while it is still expected to serve."""
        return (len(self.servers) - 1) // 2

    def start(self, wants: frozenset[str] = frozenset()) -> Self:
        """Start all of it. `wants` is what the faults need beside the servers: `network`, `disk`, `wires`, `clock`."""
        try:
            self.servers = self.make()
            for server in self.servers:
                self._open.callback(server.close)
            for server in self.servers:
                if isinstance(server, LockServer):
                    server.settable = "clock" in wants
            needed = "network" in wants or (self.direct and "wires" in wants)
            if needed and len(self.servers) > 1:
                self._make_network()
            if "disk" in wants and self.disk_size:
                self._make_disk()
            self.settle()
        except BaseException:
            self._open.close()
            raise
        return self

    def _make_network(self) -> None:
        made = Network(self.servers) if not network.why_not() else None
        if made is None:
            self.refused["network"] = network.why_not()
            return
        try:
            self.network = self._open.enter_context(made)
        except NotAllowed as refusal:
            self.refused["network"] = refusal.reason

    def _make_disk(self) -> None:
        place = self.disk_place()
        try:
            self.disk = self._open.enter_context(small_disk(place, self.disk_size))
        except NotAllowed as refusal:
            self.refused["disk"] = refusal.reason
        else:
            self.on_disk(self.disk)

    def disk_place(self) -> Path:
        """The folder that is to be small: the first server's."""
        return self.servers[0].folder

    def on_disk(self, disk: SmallDisk) -> None:
        """The disk is there: whoever writes to it has to get at it."""
        self.servers[0].prefix = [*self.servers[0].prefix, *disk.prefix]

    def revive(self) -> None:
        """Let everything go on, start what has ended, and wait until all of it answers."""
        for server in self.servers:
            if server.running:
                server.resume()
            server.relaunch()
        for server in self.servers:
            server.wait_ready()

    def close(self) -> None:
        """End everything."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
