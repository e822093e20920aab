"""A cluster of lock servers for each test file that does nothing lasting to it, and one that may be harmed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from holdfast.verify.servers.etcd import EtcdCluster, newer_etcd
from holdfast.verify.servers.lock_cluster import ClusterServer, LockCluster
from tests.servers.lock_server import Wire

LEASE = 2
"""Shorter than users may have it: what takes a lease takes no longer than it has to."""

Speak = Callable[[ClusterServer], Wire]


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdCluster]:
    with EtcdCluster(binary=newer_etcd()) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def cluster(etcd: EtcdCluster) -> Iterator[LockCluster]:
    with LockCluster(etcd=etcd, lease=LEASE) as cluster:
        yield cluster


@pytest.fixture
def speak() -> Iterator[Speak]:
    """Connections to servers, closed at the end of the test."""
    made: list[Wire] = []

    def connect(server: ClusterServer) -> Wire:
        made.append(Wire(server.port, 2, host=server.host))
        return made[-1]

    yield connect
    for wire in made:
        wire.close()
