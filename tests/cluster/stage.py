"""What the tests of this folder do to etcd and to a server by hand."""

from __future__ import annotations

import subprocess
from typing import Any

from holdfast.verify.servers.etcd import EtcdCluster, EtcdServer
from holdfast.verify.servers.process import find
from tests.servers.lock_server import Wire

TTL_MS = 60_000


class OneNode(EtcdCluster):
    """A cluster of one, which may ask who is there."""

    def __init__(self, server: EtcdServer, login: str = "") -> None:
        self.members = [server]
        self._login = login

    @property
    def url(self) -> str:
        return f"etcd://{self._login}{self.members[0].endpoint}"


def etcdctl(etcd: EtcdCluster, *words: str) -> bytes:
    """What etcd's own tool says."""
    endpoints = ",".join(member.endpoint for member in etcd.members)
    command = [find("etcdctl"), f"--endpoints={endpoints}", *words]
    env = {"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, check=True, capture_output=True, env=env).stdout


def granted(answer: Any) -> bool:
    return isinstance(answer, list) and answer[0] == "granted"


def take(wire: Wire, claim: str, name: str) -> int:
    """Acquire, which has to succeed; the token."""
    answer = wire("HF.ACQUIRE", claim, name, "WAIT", "0")
    assert granted(answer), answer
    return int(answer[1])
