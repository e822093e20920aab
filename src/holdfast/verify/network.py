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
    missing = [command for command in ("ip", "iptables", "nsenter") if shutil.which(command, path=_path()) is None]
    return f"{' and '.join(missing)} not installed: apt install iproute2 iptables util-linux" if missing else ""


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def run(*command: str) -> None:
    """Run a command of the network's; NotAllowed with what it said if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PATH": _path()})
    if done.returncode:
        raise NotAllowed("a network of its own", f"{' '.join(command)}: {done.stderr.strip()}")


def inside(name: str) -> list[str]:
    """What a command is started with to run in a namespace. (`ip netns exec` also wants to mount, which is not
    allowed everywhere that namespaces are.)"""
    return ["nsenter", f"--net=/run/netns/{name}", "--"]


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
        self._names = {id(server): f"{self._mark}n{place}" for place, server in enumerate(servers)}
        self.servers = list(servers)
        self._clients = 0
        self._made: list[str] = []

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
        switch = f"{self._mark}s"
        self._add(switch)
        run(*inside(switch), "ip", "link", "add", "br0", "type", "bridge")
        run(*inside(switch), "ip", "link", "set", "br0", "up")
        run("ip", "link", "add", f"{self._mark}r", "type", "veth", "peer", "name", "here", "netns", switch)
        self._plug(switch, "here")
        run("ip", "addr", "add", f"{self._subnet}.1/24", "dev", f"{self._mark}r")
        run("ip", "link", "set", f"{self._mark}r", "up")
        for place, server in enumerate(self.servers):
            name = self._names[id(server)]
            server.host, server.prefix = f"{self._subnet}.{10 + place}", inside(name)
            self._settle(name, f"port{place}", server.host)

    def _settle(self, name: str, port: str, address: str) -> None:
        """A namespace with an address, on the switch."""
        switch = f"{self._mark}s"
        self._add(name)
        run(*inside(switch), "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        self._plug(switch, port)
        run(*inside(name), "ip", "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            run(*inside(name), "ip", "link", "set", device, "up")

    def client_wire(self) -> ClientWire:
        """A place for one more client, with all of its connections in one hand."""
        self._clients += 1
        name = f"{self._mark}c{self._clients}"
        self._settle(name, f"client{self._clients}", f"{self._subnet}.{100 + self._clients}")
        return ClientWire(name)

    def _add(self, name: str) -> None:
        run("ip", "netns", "add", name)
        self._made.append(name)

    def _plug(self, switch: str, device: str) -> None:
        run(*inside(switch), "ip", "link", "set", device, "master", "br0")
        run(*inside(switch), "ip", "link", "set", device, "up")

    def cut_off(self, side: Iterable[Server], *, from_clients: bool = False) -> None:
        """Let nothing pass between these servers and the others. Clients reach both sides, unless told."""
        here = list(side)
        there = [server.host for server in self.servers if server not in here]
        if from_clients:
            there.append(f"{self._subnet}.1")
        for server in here:
            block = (*inside(self._names[id(server)]), "iptables", "-w", "-A")
            for host in there:
                run(*block, "INPUT", "-s", host, "-j", "DROP")
                run(*block, "OUTPUT", "-d", host, "-j", "DROP")

    def heal(self) -> None:
        """Let everything pass."""
        for name in self._names.values():
            run(*inside(name), "iptables", "-w", "-F")

    def close(self) -> None:
        """Remove what was made. The devices go with their namespaces."""
        while self._made:
            run("ip", "netns", "del", self._made.pop())


RESETTING = 0.3
"""For how long what comes is answered by a reset, so that connections which lost something end on both sides."""


class ClientWire:
    """All connections of the client in one namespace, wherever they lead to."""

    def __init__(self, namespace: str) -> None:
        self.prefix = inside(namespace)
        """What its process is started with."""
        self._lossy = False

    def _rule(self, chain: str, *rule: str) -> None:
        run(*self.prefix, "iptables", "-w", "-A", chain, *rule)

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
        run(*self.prefix, "iptables", "-w", "-F")
