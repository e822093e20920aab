"""A network of its own for the servers of a target: each in a network namespace, so that it can be cut off.

A switch (a bridge in a namespace) joins the nodes and this machine. Cutting drops packets in the
nodes' own namespaces: nothing of this machine's firewall is touched, and clients still reach everybody.

A client can have a namespace of its own too, where its servers send it to addresses that no proxy stands before.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from typing import Self

from holdfast.verify.refusal import NotAllowed
from holdfast.verify.servers.process import Server

_numbers = itertools.count()


def why_not() -> str:
    """What keeps this machine from making one; empty if nothing does."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    needed = ("ip", "iptables", "nsenter", "unshare")
    missing = [command for command in needed if shutil.which(command, path=_path()) is None]
    return f"{' and '.join(missing)} not installed: apt install iproute2 iptables util-linux" if missing else ""


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def run(*command: str) -> None:
    """Run a command of the network's; NotAllowed with what it said if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PATH": _path()})
    if done.returncode:
        raise NotAllowed("a network of its own", f"{' '.join(command)}: {done.stderr.strip()}")


class Namespace:
    """A network namespace, and the process that keeps it.

    Nothing is left behind, however this process ends: the keeper reads from us, and ends with us. (One that has a name,
    by `ip netns add`, is a mount that stays, and mounting is not allowed everywhere that namespaces are.)
    """

    def __init__(self) -> None:
        keep = ("unshare", "--net", "--", "sh", "-c", "echo && exec cat")
        self._keeper = subprocess.Popen(
            keep,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PATH": _path()},
        )
        assert self._keeper.stdout is not None
        if not self._keeper.stdout.readline():
            raise NotAllowed("a network of its own", f"{' '.join(keep)}: {self.close()}")
        self.pid = str(self._keeper.pid)
        self.inside = ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--"]
        """What a command is started with to run in it."""

    def run(self, *command: str) -> None:
        """Run a command of the network's in it."""
        run(*self.inside, *command)

    def close(self) -> str:
        """Let go of it: it ends with the last process in it. What its keeper has complained of."""
        _, complaints = self._keeper.communicate()
        return complaints.decode().strip()


class Network:
    """Settles servers, each in a namespace with an address of its own, and cuts some of them off."""

    def __init__(self, servers: Sequence[Server]) -> None:
        reason = why_not()
        if reason:
            raise NotAllowed("a network of its own", reason)
        self._mark = f"hf{os.getpid()}x{next(_numbers)}"
        # Two runs at once must not share addresses: process ids differ, and so do runs in one process.
        number = os.getpid() * 16 + next(_numbers)
        self._subnet = f"10.{200 + number // 256 % 50}.{number % 256}"
        self.servers = list(servers)
        self._homes: dict[int, Namespace] = {}
        """Of each server."""
        self._clients = 0
        self._made: list[Namespace] = []

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self) -> None:
        self._switch = self._add()
        self._switch.run("ip", "link", "add", "br0", "type", "bridge")
        self._switch.run("ip", "link", "set", "br0", "up")
        here = f"{self._mark}r"
        run("ip", "link", "add", here, "type", "veth", "peer", "name", "here", "netns", self._switch.pid)
        self._plug("here")
        run("ip", "addr", "add", f"{self._subnet}.1/24", "dev", here)
        run("ip", "link", "set", here, "up")
        for place, server in enumerate(self.servers):
            server.host = f"{self._subnet}.{10 + place}"
            home = self._homes[id(server)] = self._settle(f"port{place}", server.host)
            server.prefix = home.inside

    def _settle(self, port: str, address: str) -> Namespace:
        """A namespace with an address, on the switch."""
        made = self._add()
        self._switch.run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", made.pid)
        self._plug(port)
        made.run("ip", "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            made.run("ip", "link", "set", device, "up")
        return made

    def client_wire(self) -> ClientWire:
        """A place for one more client, with all of its connections in one hand."""
        self._clients += 1
        return ClientWire(self._settle(f"client{self._clients}", f"{self._subnet}.{100 + self._clients}"))

    def _add(self) -> Namespace:
        self._made.append(Namespace())
        return self._made[-1]

    def _plug(self, device: str) -> None:
        self._switch.run("ip", "link", "set", device, "master", "br0")
        self._switch.run("ip", "link", "set", device, "up")

    def cut_off(self, side: Iterable[Server], *, from_clients: bool = False) -> None:
        """Let nothing pass between these servers and the others. Clients reach both sides, unless told."""
        here = list(side)
        there = [server.host for server in self.servers if server not in here]
        if from_clients:
            there.append(f"{self._subnet}.1")
        for server in here:
            home = self._homes[id(server)]
            for host in there:
                home.run("iptables", "-w", "-A", "INPUT", "-s", host, "-j", "DROP")
                home.run("iptables", "-w", "-A", "OUTPUT", "-d", host, "-j", "DROP")

    def heal(self) -> None:
        """Let everything pass."""
        for home in self._homes.values():
            home.run("iptables", "-w", "-F")

    def close(self) -> None:
        """Remove what was made. The devices go with their namespaces."""
        while self._made:
            self._made.pop().close()


RESETTING = 0.3
"""For how long what comes is answered by a reset, so that connections which lost something end on both sides."""


class ClientWire:
    """All connections of the client in one namespace, wherever they lead to."""

    def __init__(self, home: Namespace) -> None:
        self._home, self.prefix = home, home.inside
        """The second is what its process is started with."""
        self._lossy = False

    def _rule(self, chain: str, *rule: str) -> None:
        self._home.run("iptables", "-w", "-A", chain, *rule)

    def cut(self) -> None:
        """Whatever is sent, in either direction, is answered by a reset, new connections too."""
        for chain in ("OUTPUT", "INPUT"):
            self._rule(
                chain, "-p", "tcp", "!", "--tcp-flags", "RST", "RST", "-j", "REJECT", "--reject-with", "tcp-reset"
            )

    def stall(self) -> None:
        """Nothing comes through in either direction, and nothing says so."""
        for chain in ("OUTPUT", "INPUT"):
            self._rule(chain, "-j", "DROP")

    def drop_replies(self) -> None:
        """What carries data to the client is lost; what only confirms comes through."""
        self._lossy = True
        self._rule("INPUT", "-p", "tcp", "--tcp-flags", "PSH", "PSH", "-j", "DROP")

    def heal(self) -> None:
        """Let everything through again."""
        if self._lossy:
            self._lossy = False
            self.cut()
            time.sleep(RESETTING)
        self._home.run("iptables", "-w", "-F")
