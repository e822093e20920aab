"""Who leads, and what a server that does not lead any more can still do: nothing."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import hiredis
import pytest

from holdfast.server.cluster import entries
from holdfast.verify.network import Network
from holdfast.verify.servers.etcd import EtcdCluster, newer_etcd
from holdfast.verify.servers.lock_cluster import ClusterServer, LockCluster
from holdfast.verify.servers.process import wait_until
from tests.cluster.conftest import LEASE, Speak
from tests.cluster.stage import TTL_MS, etcdctl, take
from tests.servers.lock_server import Wire

TAKEN_OVER_WITHIN = 60.0


def everything(etcd: EtcdCluster) -> bytes:
    """All values in etcd, batches as they were before they were compressed."""
    found = json.loads(etcdctl(etcd, "get", "", "--from-key", "-w", "json"))["kvs"]
    values = [base64.b64decode(each["value"]) for each in found]
    return b"\n".join(entries.unpacked(each[1:]) if each[:1] == entries.LAST else each for each in values)


def another_leads(cluster: LockCluster, former: ClusterServer) -> ClusterServer:
    """Who has taken over."""
    others = [member for member in cluster.members if member is not former]
    wait_until(lambda: any(member.leads for member in others), TAKEN_OVER_WITHIN, "another one leading")
    return next(member for member in others if member.leads)


def test_a_follower_names_the_leader_and_does_nothing(cluster: LockCluster, speak: Speak) -> None:
    leader = cluster.leader()
    follower = cluster.followers()[0]

    answer = speak(follower)("HF.OPEN", "*", "*", TTL_MS)

    assert isinstance(answer, hiredis.ReplyError)
    assert str(answer).split()[:2] == ["NOTLEADER", str(leader.address)]


def test_a_leader_that_was_paused_past_its_lease_answers_nothing_of_what_waited(
    cluster: LockCluster, speak: Speak
) -> None:
    leader = cluster.leader()
    wire = speak(leader)
    session = wire.open(TTL_MS)
    first = take(wire, f"{session}-1", "paused/before")
    leader.pause()
    try:
        wire.send("HF.ACQUIRE", f"{session}-2", "paused/while", "WAIT", "0")
        wire.send("HF.RENEW", session)
        wire.send("HF.RELEASE", f"{session}-1")
        successor = another_leads(cluster, leader)
    finally:
        leader.resume()
    answers = list(wire.rest())

    assert [answer for answer in answers if not isinstance(answer, hiredis.ReplyError)] == []
    again = speak(successor)
    assert again("HF.RESUME", session, wire.secret)[0] == "open"
    assert again("HF.LOOK", f"{session}-1")[:2] == ["granted", first]
    assert again("HF.LOOK", f"{session}-2")[0] == "gone"
    assert take(again, f"{session}-3", "paused/while") > first


def test_what_a_leader_answers_is_in_etcd_and_what_it_was_refused_is_not(cluster: LockCluster, speak: Speak) -> None:
    """Its key is taken from it while it believes that it leads: etcd refuses the commit, and nobody hears a yes."""
    leader = cluster.leader()
    wire = speak(leader)
    session = wire.open(TTL_MS)
    take(wire, f"{session}-1", "refused/before")
    keys = etcdctl(cluster.etcd, "get", "", "--from-key", "--keys-only").split()
    mine = [key for key in keys if key.endswith(b"/leader")]
    assert len(mine) == 1, keys

    etcdctl(cluster.etcd, "del", mine[0].decode())
    wire.send("HF.ACQUIRE", f"{session}-2", "refused/after", "WAIT", "0")
    answers = list(wire.rest())

    assert [answer for answer in answers if not isinstance(answer, hiredis.ReplyError)] == []
    kept = everything(cluster.etcd)
    assert b"refused/before" in kept
    assert b"refused/after" not in kept


def test_a_leader_that_was_killed_is_followed_by_one_that_knows_everything(cluster: LockCluster, speak: Speak) -> None:
    leader = cluster.leader()
    wire, rival = speak(leader), speak(leader)
    session, theirs = wire.open(TTL_MS), rival.open(TTL_MS)
    token = take(wire, f"{session}-1", "killed")
    places = [rival("HF.ACQUIRE", f"{theirs}-{n}", "killed", "OWNER", str(n)) for n in range(3)]
    assert [place[:2] for place in places] == [["queued", 1], ["queued", 2], ["queued", 3]]
    leader.kill()
    try:
        successor = another_leads(cluster, leader)
        wire, rival, secrets = speak(successor), speak(successor), (wire.secret, rival.secret)
        assert wire("HF.RESUME", session, secrets[0])[0] == "open"
        assert rival("HF.RESUME", theirs, secrets[1])[0] == "open"
        assert wire("HF.LOOK", f"{session}-1")[:2] == ["granted", token]
        assert [rival("HF.LOOK", f"{theirs}-{n}")[:2] for n in range(3)] == [place[:2] for place in places]
        assert wire("HF.RELEASE", f"{session}-1") == "OK"
        assert rival("HF.LOOK", f"{theirs}-0")[1] > token
    finally:
        leader.start()


@pytest.fixture(scope="module")
def apart() -> Iterator[tuple[LockCluster, Network]]:
    """Servers that can be cut off from etcd and from each other, but not from clients."""
    etcd = EtcdCluster(binary=newer_etcd())
    cluster = LockCluster(etcd=etcd, lease=LEASE)
    with Network([*cluster.members, *etcd.members]) as network, etcd, cluster:
        yield cluster, network


@pytest.mark.parametrize("what", ["HF.RENEW", "HF.LOOK"])
def test_a_leader_cut_off_from_etcd_stops_answering_before_another_one_leads(
    apart: tuple[LockCluster, Network], speak: Speak, what: str
) -> None:
    """A heartbeat has to be written; a look at what is held has not, and is true only as long as nobody else leads."""
    cluster, network = apart
    leader = cluster.leader()
    wire = speak(leader)
    session = wire.open(TTL_MS)
    take(wire, f"{session}-1", f"cut off/{what}")
    asked = (what, session if what == "HF.RENEW" else f"{session}-1")
    assert wire(*asked)[0] in ("open", "granted")
    network.cut_off([leader])
    try:
        last_yes = 0.0
        for answer in answers(wire, asked):
            if isinstance(answer, hiredis.ReplyError):
                break
            last_yes = time.time()
        successor = another_leads(cluster, leader)
    finally:
        network.heal()

    assert successor.status["leader"]["since"] > last_yes
    assert not leader.leads


def answers(wire: Wire, asked: tuple[str, ...]) -> Iterator[Any]:
    """What comes of asking again and again, until the connection ends."""
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            yield wire(*asked)
