"""A backup by etcd's own means, and what is there after going back to it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from holdfast.verify.servers.etcd import EtcdServer
from holdfast.verify.servers.lock_cluster import ClusterServer
from holdfast.verify.servers.process import find, wait_until
from tests.cluster.conftest import LEASE, Speak
from tests.cluster.stage import TTL_MS, OneNode, etcdctl, take


def restore(node: EtcdServer, backup: Path) -> None:
    """What an operator does on each machine: an empty folder, filled from the backup."""
    shutil.rmtree(node.folder / "data")
    command = [
        find("etcdctl"), "snapshot", "restore", str(backup), "--name", node.member, "--data-dir",
        str(node.folder / "data"), "--initial-cluster", f"{node.member}={node.peer}",
        "--initial-advertise-peer-urls", node.peer,
    ]  # fmt: skip
    env = {"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin"}
    subprocess.run(command, check=True, capture_output=True, env=env)


def test_after_a_restore_the_locks_are_those_of_the_backup_and_no_token_comes_again(
    speak: Speak, tmp_path: Path
) -> None:
    backup = tmp_path / "locks.snap"
    with EtcdServer() as node:
        etcd = OneNode(node)
        with ClusterServer(etcd, lease=LEASE) as server:
            wait_until(lambda: server.leads, 60.0, "it leading")
            wire = speak(server)
            session = wire.open(TTL_MS)
            kept = take(wire, f"{session}-1", "before")
            etcdctl(etcd, "snapshot", "save", str(backup))
            lost = take(wire, f"{session}-2", "after")
            server.stop()
            node.stop()
            restore(node, backup)
            node.start()
            server.start()
            wait_until(lambda: server.leads, 60.0, "it leading again")
            again = speak(server)

            assert again("HF.RESUME", session, wire.secret)[0] == "open"
            assert again("HF.LOOK", f"{session}-1")[:2] == ["granted", kept]
            assert again("HF.LOOK", f"{session}-2")[0] == "gone"
            assert take(again, f"{session}-3", "after") > lost
