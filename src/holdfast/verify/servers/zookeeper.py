"""ZooKeeper as Debian packs it: one server, or an ensemble, with short ticks."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.process import Server, ServerMissing, find, wait_until

JARS = (
    "zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-nop", "netty-handler", "netty-common", "netty-buffer",
    "netty-transport", "netty-codec", "netty-resolver", "netty-transport-native-epoll",
    "netty-transport-native-unix-common", "snappy-java", "metrics-core", "jackson-core", "jackson-databind",
    "jackson-annotations", "commons-cli",
)  # fmt: skip
TICK_MS = 200
QUICK = "-Dzookeeper.forceSync=no"
"""Where nobody pulls a plug, nobody has to wait for a disk."""


class ZooKeeperServer(Server):
    """One server; part of an ensemble if it is told of its peers."""

    name = "zookeeper"

    def __init__(self, *settings: str, flags: Sequence[str] = (), tick_ms: int = TICK_MS) -> None:
        super().__init__()
        self.settings, self.flags, self.tick_ms = list(settings), list(flags), tick_ms
        for setting in ("syncLimit=5", "minSessionTimeout=1200", "maxSessionTimeout=60000", "4lw.commands.whitelist=*"):
            if not any(given.startswith(setting.partition("=")[0]) for given in settings):
                self.settings.append(setting)
        self.number = 1
        self.members: list[ZooKeeperServer] = [self]
        self.quorum_port, self.election_port = self.own_port(), self.own_port()
        self.ways: dict[int, int] = {}
        """By a member's number: the port of a proxy on the way to it."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"zookeeper://{self.address}"

    def prepare(self) -> None:
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(str(self.number))

    def command(self) -> list[str]:
        config = self.folder / "zoo.cfg"
        lines = [
            f"tickTime={self.tick_ms}", "initLimit=25", f"dataDir={self.folder}/data",
            f"clientPort={self.port}", f"clientPortAddress={self.host}", "maxClientCnxns=0", "admin.enableServer=false",
            *self.settings, *self._peers(),
        ]  # fmt: skip
        config.write_text("\n".join(lines) + "\n")
        folder = Path("/usr/share/java")
        if not (folder / "zookeeper.jar").exists():
            raise ServerMissing("zookeeper")
        classes = ":".join(str(folder / f"{jar}.jar") for jar in JARS)
        heap = ["-Xms32m", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        own = ["-Djava.net.preferIPv4Stack=true", *self.flags]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return [find("java"), *heap, *own, "-cp", classes, main, str(config)]

    def _peers(self) -> list[str]:
        if len(self.members) == 1:
            return []
        return [
            f"server.{each.number}={each.host}:{self.ways.get(each.number, each.quorum_port)}:{each.election_port}"
            for each in self.members
        ]

    def is_ready(self) -> bool:
        return "Mode:" in self.ask("srvr")

    def ask(self, word: str) -> str:
        """What it answers to one of its four-letter words; nothing if it does not answer."""
        try:
            with socket.create_connection((self.host, self.port), 2.0) as connection:
                connection.sendall(word.encode())
                answer = b""
                while part := connection.recv(65536):
                    answer += part
                return answer.decode()
        except OSError:
            return ""

    @property
    def leads(self) -> bool:
        return "Mode: leader" in self.ask("srvr")


def members(size: int, *settings: str, flags: Sequence[str] = ()) -> list[ZooKeeperServer]:
    """Servers that know of each other, not started."""
    servers = [ZooKeeperServer(*settings, flags=flags) for _ in range(size)]
    for number, server in enumerate(servers, 1):
        server.number, server.members = number, servers
    return servers


class Ensemble:
    """Several servers. If they are to be cut off, each reaches the others by proxies of its own.

    An election takes longer by proxies: they accept a connection where a server would refuse it.
    """

    def __init__(self, size: int = 3, *, by_proxies: bool = False) -> None:
        # Who is cut off may not notice for long: five seconds, in which it goes on answering.
        settings = ["syncLimit=25"] if by_proxies else []
        self.servers = members(size, *settings, flags=[QUICK])
        self._by_proxies = by_proxies
        self._ways: dict[tuple[ZooKeeperServer, ZooKeeperServer], Proxy] = {}
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        return "zookeeper://" + ",".join(server.address for server in self.servers)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for one in self.servers:
                stack.callback(one.close)
                for other in self.servers if self._by_proxies else ():
                    if other is not one:
                        way = self._ways[one, other] = stack.enter_context(Proxy("127.0.0.1", other.quorum_port))
                        one.ways[other.number] = way.port
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.wait_ready()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def leader(self) -> ZooKeeperServer:
        """The one that leads, once there is one."""
        found: list[ZooKeeperServer] = []

        def elected() -> bool:
            found[:] = [server for server in self.servers if server.running and server.leads]
            return len(found) == 1

        wait_until(elected, 30.0, "an election")
        return found[0]

    @property
    def followers(self) -> list[ZooKeeperServer]:
        leader = self.leader
        return [server for server in self.servers if server is not leader]

    @contextmanager
    def lagging(self, server: ZooKeeperServer, seconds: float) -> Iterator[None]:
        """What the others tell this server comes later while this lasts."""
        ways = [way for (one, _), way in self._ways.items() if one is server]
        for way in ways:
            way.replies.delay = seconds
        try:
            yield
        finally:
            for way in ways:
                way.replies.delay = 0.0

    @contextmanager
    def cut_off(self, server: ZooKeeperServer) -> Iterator[None]:
        """Nothing goes between this server and the others while this lasts; nobody is told."""
        ways = [way for pair, way in self._ways.items() if server in pair]
        for way in ways:
            way.requests.set("stall")
            way.replies.set("stall")
        try:
            yield
        finally:
            for way in ways:
                way.cut()
                way.heal()
            wait_until(server.is_ready, 60.0, "the server being one of them again")
