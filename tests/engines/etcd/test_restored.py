"""An etcd that was put back to an earlier state, with clients that stayed."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import EngineUnavailable, LockLost
from holdfast.verify.servers.etcd import EtcdServer
from tests.faults.looks import looked_at
from tests.servers.process import find, wait_until


@pytest.fixture
def server() -> Iterator[EtcdServer]:
    """One of the test's own."""
    with EtcdServer() as server:
        yield server


def etcdctl(server: EtcdServer, *words: str) -> None:
    command = [find("etcdctl"), f"--endpoints={server.endpoint}", *words]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "ETCDCTL_API": "3"})


def put_back_a_snapshot(server: EtcdServer, folder: Path) -> Callable[[], None]:
    """What `etcdctl snapshot` is for: it makes a new cluster."""
    etcdctl(server, "snapshot", "save", str(folder / "snapshot"))

    def restore() -> None:
        etcdctl(
            server, "snapshot", "restore", str(folder / "snapshot"), "--name", server.member,
            "--data-dir", str(folder / "restored"), "--initial-cluster", f"{server.member}={server.peer}",
            "--initial-advertise-peer-urls", server.peer,
        )  # fmt: skip
        shutil.move(folder / "restored", server.folder / "data")

    return restore


def put_back_files(server: EtcdServer, folder: Path) -> Callable[[], None]:
    """The files of the only member, as a snapshot of its machine has them: the cluster is the same."""
    server.stop()
    shutil.copytree(server.folder / "data", folder / "data")
    server.start()

    def restore() -> None:
        shutil.move(folder / "data", server.folder / "data")

    return restore


@pytest.mark.parametrize("take_copy", [put_back_a_snapshot, put_back_files])
def test_a_holder_hears_that_etcd_came_back_without_its_grant(
    server: EtcdServer, tmp_path: Path, take_copy: Callable[[EtcdServer, Path], Callable[[], None]]
) -> None:
    with holdfast.connect(server.url, ttl=60.0) as locks, holdfast.connect(server.url, ttl=60.0) as others:
        locks.lock("earlier").acquire().release()
        put_back = take_copy(server, tmp_path)
        grant = locks.lock("k").acquire(wait=30.0)
        server.kill()
        shutil.rmtree(server.folder / "data")
        put_back()
        server.start()
        with others.lock("k", wait=30.0):

            def is_lost() -> bool:
                try:
                    grant.renew()
                except EngineUnavailable:
                    return False
                except LockLost as lost:
                    return "older state" in str(lost)
                pytest.fail("two holders are told that they hold the lock")

            # Long before the next heartbeat, and the end of the session.
            wait_until(is_lost, 10.0, "the loss of a grant that etcd does not have")
        with locks.lock("k", wait=30.0) as again:
            again.check()


def test_a_holder_keeps_its_grants_over_a_restart(server: EtcdServer) -> None:
    with holdfast.connect(server.url, ttl=60.0) as locks:
        grants = [locks.lock("k").acquire(), locks.semaphore("s", limit=2).acquire()]
        asked = looked_at(locks)
        server.stop()
        server.start()
        wait_until(lambda: set(asked) == {"k", "s"}, 30.0, "a look at each grant, once or again")

        for grant in grants:
            grant.release()


class Gate:
    """Heartbeats of one client wait here while it is closed."""

    def __init__(self, locks: holdfast.Client) -> None:
        self.open = threading.Event()
        self.open.set()
        core = locks._core
        assert core.keeper is not None
        verbs: Any = core.keeper.verbs
        renew = verbs.renew

        async def when_open(session: str, until: float) -> Any:
            self.open.wait(60.0)
            return await renew(session, until)

        verbs.renew = when_open


def come_back(server: EtcdServer, put_back: Callable[[], None], gate: Gate) -> None:
    """Put the copy back and let others write more than was lost, before this client's heartbeat sees that."""
    gate.open.clear()
    server.kill()
    shutil.rmtree(server.folder / "data")
    put_back()
    server.start()
    with holdfast.connect(server.url, ttl=60.0) as others:
        for number in range(100):
            others.cell("c").set(number)
    gate.open.set()


@pytest.mark.parametrize("limit", [0, 1], ids=["lock", "permit"])
@pytest.mark.parametrize("take_copy", [put_back_a_snapshot, put_back_files])
def test_a_lock_that_was_given_back_since_does_not_stay_held(
    server: EtcdServer, tmp_path: Path, limit: int, take_copy: Callable[[EtcdServer, Path], Callable[[], None]]
) -> None:
    with holdfast.connect(server.url, ttl=15.0) as locks, holdfast.connect(server.url, ttl=60.0) as others:
        grant = (locks.semaphore("k", limit) if limit else locks.lock("k")).acquire()
        put_back = take_copy(server, tmp_path)
        grant.release()
        come_back(server, put_back, Gate(locks))

        (others.semaphore("k", limit) if limit else others.lock("k")).acquire(wait=60.0).release()
