"""A leader that was cut off does not know it yet, and goes on renewing leases that its successor counts."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator

import pytest

from holdfast.core.table.commands import Opened, Renewed
from holdfast.core.table.rows import Session
from holdfast.core.urls import parse
from holdfast.engines.etcd.address import parse_address
from holdfast.engines.etcd.engine import EtcdEngine
from holdfast.engines.etcd.wire import LEASE_KEEP_ALIVE, Answer, EtcdPort, Request, Wire
from holdfast.runtime import clock
from holdfast.runtime.blocking import BlockingIo, run
from holdfast.verify.network import Network
from holdfast.verify.servers.etcd import EtcdCluster, EtcdServer
from tests.servers.process import wait_until

SESSION = "5e5510"
SLOW = ("--election-timeout", "20000")
"""How long the first one believes that it leads when it hears from nobody; the others elect at once."""


@pytest.fixture
def cluster() -> Iterator[tuple[EtcdCluster, Network]]:
    cluster = EtcdCluster()
    stubborn = EtcdServer(*SLOW)
    cluster.members[0] = stubborn
    for member in cluster.members:
        member.cluster = cluster.members
    with Network(cluster.members) as network, cluster:
        yield cluster, network


def status(member: EtcdServer) -> dict[str, str]:
    asked = urllib.request.Request(f"http://{member.endpoint}/v3/maintenance/status", b"{}")
    with urllib.request.urlopen(asked, timeout=5) as reply:
        told: dict[str, dict[str, str]] = json.load(reply)
    return told["header"]


def let_lead(cluster: EtcdCluster, member: EtcdServer) -> None:
    """Make this one the leader."""
    wanted = json.dumps({"targetID": status(member)["member_id"]}).encode()

    def leads() -> bool:
        leader = cluster.leader()
        if leader is not member:
            asked = urllib.request.Request(f"http://{leader.endpoint}/v3/maintenance/transfer-leadership", wanted)
            with urllib.request.urlopen(asked, timeout=10):
                return False
        return True

    wait_until(leads, 30.0, "the leadership moving")


class Misled:
    """Sends the first renewal to somebody else than the rest."""

    def __init__(self, first: EtcdPort, rest: EtcdPort) -> None:
        self._first, self._rest = first, rest
        self.renewed: list[Answer] = []

    def call(self, request: Request, until: float) -> Answer:
        if request.method != LEASE_KEEP_ALIVE:
            return self._rest.call(request, until)
        self.renewed.append((self._rest if self.renewed else self._first).call(request, until))
        return self.renewed[-1]


def test_what_a_former_leader_renews_does_not_count(cluster: tuple[EtcdCluster, Network]) -> None:
    members, network = cluster
    former, *others = members.members
    let_lead(members, former)
    engine = EtcdEngine(parse("etcd://" + ",".join(other.endpoint for other in others)), "test")
    wire = Wire(parse_address(parse(former.url)))
    try:
        verbs = engine.blocking()
        opened = run(verbs.open_session(Session(SESSION, 60.0, 0.0), clock.now() + 10.0))
        assert isinstance(opened, Opened)
        network.cut_off([former])
        wait_until(lambda: any(other.leads for other in others), 30.0, "a successor")
        assert former.leads, "or nothing is tried here"
        port = Misled(EtcdPort(wire), EtcdPort(engine.wire))
        verbs.io = BlockingIo(port)

        renewed = run(verbs.renew(SESSION, clock.now() + 20.0))

        assert isinstance(renewed, Renewed)
        by_former, by_successor = port.renewed
        assert by_former.message.TTL == by_successor.message.TTL, "the former one was as sure as its successor"
        assert by_former.term < by_successor.term
    finally:
        wire.close()
        engine.close()
