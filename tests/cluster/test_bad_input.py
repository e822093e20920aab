"""What a server of a cluster is not to be started with, and what it does when etcd refuses it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import hiredis
import pytest

import holdfast
from holdfast.verify.servers.etcd import EtcdCluster, newer_etcd
from holdfast.verify.servers.lock_cluster import ClusterServer, LockCluster
from holdfast.verify.servers.process import wait_until
from tests.cluster.conftest import LEASE, Speak
from tests.cluster.stage import TTL_MS, etcdctl, granted, take
from tests.servers.lock_server import LockServer, Wire

HERE = ("--advertise", "127.0.0.1:7420")
SETTINGS = [
    (("--store", "etcd://127.0.0.1:1", "--advertise", "host:99999"), "advertise"),
    (("--store", "etcd://127.0.0.1:1", "--advertise", "0.0.0.0:7420"), "advertise"),
    (("--store", "etcd://127.0.0.1:1", "--advertise", "127.0.0.1:0"), "advertise"),
    # Without --advertise it is the address that the server listens on.
    (("--store", "etcd://127.0.0.1:1", "--listen", "0.0.0.0:7420", "--insecure"), "--advertise"),
    (("--store", "etcd://127.0.0.1:1?lease=4", *HERE), "lease"),
    (("--store", "etcd://127.0.0.1:1?lease=5.5", *HERE), "lease"),
    (("--store", "etcd://127.0.0.1:1?lease=soon", *HERE), "lease"),
    (("--store", "etcd://127.0.0.1:1?log_kib=many", *HERE), "log_kib"),
    (("--store", "etcd://127.0.0.1:1?compact=maybe", *HERE), "compact"),
    (("--store", "etcd://127.0.0.1:1?name=", *HERE), "name"),
    (("--store", "etcd://127.0.0.1:1?name=a/b", *HERE), "name"),
    (("--store", "etcd://127.0.0.1:1?leese=5", *HERE), "did you mean 'lease'"),
    (("--store", "etcd://127.0.0.1:1/path", *HERE), "hosts only"),
    (("--store", "etcd://127.0.0.1:1?ca=/nowhere/ca.pem", *HERE), "cannot be read"),
]
TRY_EACH = """
import contextlib, io, json, sys
from holdfast.cli.main import exit_code_of
for options in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = exit_code_of(["serve", *options])
    print(json.dumps([code, said.getvalue()]), flush=True)
"""


@pytest.fixture(scope="module")
def refusals() -> dict[tuple[str, ...], tuple[int, str]]:
    """What a server says to each of them, and its exit code. One that starts with any of them never ends."""
    given = json.dumps([options for options, _ in SETTINGS])
    done = subprocess.run([sys.executable, "-c", TRY_EACH, given], capture_output=True, text=True, timeout=60)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return {options: (code, said) for (options, _), (code, said) in zip(SETTINGS, told, strict=True)}


@pytest.mark.parametrize(("options", "what"), SETTINGS)
def test_a_setting_that_cannot_be_is_refused_before_anything_is_done(
    refusals: dict[tuple[str, ...], tuple[int, str]], options: tuple[str, ...], what: str
) -> None:
    code, said = refusals[options]

    assert (code, what in said) == (2, True), said


@pytest.fixture(scope="module")
def one_node() -> Iterator[EtcdCluster]:
    with one_etcd() as etcd:
        yield etcd


@contextmanager
def one_etcd(*options: str) -> Iterator[EtcdCluster]:
    """As little etcd as there can be."""
    etcd = EtcdCluster(*options, binary=newer_etcd())
    for spare in etcd.members[1:]:
        spare.close()
    del etcd.members[1:]
    with etcd:
        yield etcd


def test_two_clusters_of_different_names_in_one_etcd_do_not_see_each_other(one_node: EtcdCluster, speak: Speak) -> None:
    with (
        LockCluster(etcd=one_node, count=2, lease=LEASE, store_options="&name=red") as red,
        LockCluster(etcd=one_node, count=2, lease=LEASE, store_options="&name=blue") as blue,
    ):
        for cluster in (red, blue):
            known = {member["advertise"] for member in cluster.leader().status["members"]}
            assert known == {str(member.address) for member in cluster.members}
            wire = speak(cluster.leader())
            take(wire, f"{wire.open(TTL_MS)}-1", "both")


def test_a_cluster_of_a_newer_format_is_refused(one_node: EtcdCluster, speak: Speak) -> None:
    with LockCluster(etcd=one_node, count=1, lease=LEASE, store_options="&name=newer") as cluster:
        wire = speak(cluster.leader())
        take(wire, f"{wire.open(TTL_MS)}-1", "k")
    keys = etcdctl(one_node, "get", "", "--from-key", "--keys-only").decode().split()
    head = next(key for key in keys if "newer" in key and key.endswith("/head"))
    known = etcdctl(one_node, "get", head, "--print-value-only").decode().strip()
    newer = known.replace('"format": 1', '"format": 999')
    assert newer != known

    etcdctl(one_node, "put", head, newer)
    late = ClusterServer(one_node, lease=LEASE, store_options="&name=newer")
    try:
        late.launch()
        wait_until(lambda: not late.running, 60.0, "the server ending")
        assert "start a newer version of Holdfast" in late.log.read_text()
    finally:
        late.close()
    assert etcdctl(one_node, "get", head, "--print-value-only").decode().strip() == newer


def test_a_full_etcd_refuses_and_is_served_again_when_it_has_room(speak: Speak) -> None:
    """NOSPACE is an alarm that stays until an operator takes it back."""
    with one_etcd("--quota-backend-bytes", str(4 << 20)) as etcd, LockCluster(etcd=etcd, count=1, lease=LEASE) as alone:
        wire = speak(alone.leader())
        session = wire.open(TTL_MS)
        take(wire, f"{session}-1", "before")
        fill(etcd)

        answer = wire("HF.ACQUIRE", f"{session}-2", "while", "WAIT", "0")
        assert isinstance(answer, hiredis.ReplyError), answer
        empty(etcd)
        again = served_again(alone, speak, session, wire.secret)

        assert again("HF.LOOK", f"{session}-1")[0] == "granted"
        assert again("HF.LOOK", f"{session}-2")[0] == "gone"
        wait_until(lambda: granted(again("HF.ACQUIRE", f"{session}-3", "while", "WAIT", "0")), 60.0, "a new grant")


def fill(etcd: EtcdCluster) -> None:
    """Write until the alarm is raised."""

    def full() -> bool:
        try:
            etcdctl(etcd, "put", "/filling", "x" * 100_000)
        except subprocess.CalledProcessError as error:
            return b"space exceeded" in error.stderr
        return False

    wait_until(full, 60.0, "etcd being full")


def empty(etcd: EtcdCluster) -> None:
    """What an operator does: forget the past, give the room back, take the alarm back."""
    etcdctl(etcd, "del", "/filling")
    revision = int(etcdctl(etcd, "get", "/nothing", "-w", "json").decode().partition('"revision":')[2].split(",")[0])
    etcdctl(etcd, "compact", str(revision))
    etcdctl(etcd, "defrag")
    etcdctl(etcd, "alarm", "disarm")


def served_again(cluster: LockCluster, speak: Speak, session: str, secret: str) -> Wire:
    """A connection that speaks for the session, once there is a leader that can write."""
    found: list[Wire] = []

    def answers(wire: Wire) -> bool:
        for words in (("HF.RESUME", session, secret), ("HF.RENEW", session)):
            answer = wire(*words)
            if isinstance(answer, hiredis.ReplyError) or answer[0] != "open":
                return False
        return True

    def resumed() -> bool:
        found[:] = [speak(cluster.leader())]
        return answers(found[0])

    wait_until(resumed, 60.0, "being served again")
    return found[0]


def test_an_etcd_store_without_its_driver_names_what_to_install() -> None:
    code = (
        "import sys; sys.modules['hpack'] = None\n"
        "from holdfast.cli.main import main\n"
        "main(['serve', '--store', 'etcd://127.0.0.1:1', '--advertise', '127.0.0.1:7420'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)

    assert done.returncode != 0
    assert "holdfast[etcd]" in done.stderr
    assert "Traceback" not in done.stderr


def test_clients_of_a_cluster_are_refused_by_a_server_that_is_alone() -> None:
    """What several addresses promise, one server cannot keep."""
    with LockServer(store="sqlite:///locks.db") as server:
        with holdfast.connect(f"holdfast://127.0.0.1:{server.port},127.0.0.1:1") as locks:
            with pytest.raises(holdfast.EngineUnavailable, match="not replicated"):
                locks.lock("k").acquire(wait=5.0)
