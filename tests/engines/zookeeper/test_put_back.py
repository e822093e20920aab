"""A ZooKeeper that was put back to an earlier copy, with clients that stayed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import holdfast
from holdfast import EngineUnavailable, LockLost
from tests.servers.process import wait_until
from tests.servers.zookeeper import ZooKeeperServer


@pytest.fixture
def server() -> Iterator[ZooKeeperServer]:
    """One of the test's own."""
    with ZooKeeperServer() as server:
        yield server


def beat(grant: holdfast.Grant) -> bool:
    """Send a heartbeat; whether it was answered."""
    try:
        grant.renew()
    except EngineUnavailable:
        return False
    return True


def catch_up(server: ZooKeeperServer) -> None:
    """Write more than was lost: a server takes no client back that has seen later writes than it has."""
    kazoo = KazooClient(server.address)
    kazoo.start(30.0)
    for _ in range(200):
        kazoo.create("/more", b"", sequence=True)
    kazoo.stop()
    kazoo.close()


def test_a_heartbeat_sees_that_an_earlier_one_is_not_there(server: ZooKeeperServer, tmp_path: Path) -> None:
    with holdfast.connect(server.url, ttl=40.0) as locks, holdfast.connect(server.url, ttl=40.0) as others:
        kept, given_back = locks.lock("kept").acquire(), locks.lock("k").acquire()
        server.stop()
        shutil.copytree(server.folder / "data", tmp_path / "data")
        server.start()
        wait_until(lambda: beat(kept), 30.0, "the server does not answer")
        given_back.release()
        server.kill()
        shutil.rmtree(server.folder / "data")
        shutil.move(tmp_path / "data", server.folder / "data")
        server.start()
        catch_up(server)

        def is_lost() -> bool:
            try:
                beat(kept)
                kept.check()
            except LockLost as lost:
                return "older state" in str(lost)
            return False

        wait_until(is_lost, 30.0, "the session goes on")
        others.lock("k").acquire(wait=60.0).release()
