"""Machines on a network of their own, which can be cut apart: network namespaces behind one bridge."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from typing import Self


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


class Network:
    """Hosts 2, 3, … of one subnet; this machine is host 1. Needs to be run as root."""

    def __init__(self, hosts: int) -> None:
        self._id = f"{os.getpid() % 65536:04x}{id(self) >> 4 & 0xFF:02x}"
        number = os.getpid() % 16384
        self._subnet = f"10.{64 + number // 256}.{number % 256}"
        self.addresses = [f"{self._subnet}.{host}" for host in range(2, hosts + 2)]
        self._bridge = f"hfb{self._id}"
        self._cuts: list[list[str]] = []

    def name(self, address: str) -> str:
        """The namespace of a host."""
        return f"hf{self._id}x{self.addresses.index(address)}"

    def within(self, address: str) -> tuple[str, ...]:
        """What runs a command on a host."""
        return ("ip", "netns", "exec", self.name(address))

    def __enter__(self) -> Self:
        _run("ip", "link", "add", self._bridge, "type", "bridge")
        _run("ip", "address", "add", f"{self._subnet}.1/24", "dev", self._bridge)
        _run("ip", "link", "set", self._bridge, "up")
        for number, address in enumerate(self.addresses):
            name, near, far = self.name(address), f"hfv{self._id}{number}", f"hfw{self._id}{number}"
            _run("ip", "netns", "add", name)
            _run("ip", "link", "add", near, "type", "veth", "peer", "name", far)
            _run("ip", "link", "set", near, "master", self._bridge)
            _run("ip", "link", "set", near, "up")
            _run("ip", "link", "set", far, "netns", name)
            _run(*self.within(address), "ip", "address", "add", f"{address}/24", "dev", far)
            _run(*self.within(address), "ip", "link", "set", far, "up")
            _run(*self.within(address), "ip", "link", "set", "lo", "up")
        return self

    def cut(self, address: str, others: Iterable[str]) -> None:
        """Let nothing through between a host and some others. This machine still reaches all of them."""
        for other in others:
            for way in (("INPUT", "-s"), ("OUTPUT", "-d")):
                rule = [way[0], way[1], other, "-j", "DROP"]
                _run(*self.within(address), "iptables", "-w", "-A", *rule)
                self._cuts.append([*self.within(address), "iptables", "-w", "-D", *rule])

    def heal(self) -> None:
        """Let everything through again."""
        for undo in self._cuts:
            _run(*undo)
        self._cuts.clear()

    def __exit__(self, *_: object) -> None:
        for address in self.addresses:
            _run("ip", "netns", "del", self.name(address))
        _run("ip", "link", "del", self._bridge)
