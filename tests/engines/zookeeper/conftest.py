"""One ZooKeeper server, and one ensemble of three, for all tests here; a chroot of its own for each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from holdfast.verify.proxy import Proxy
from tests.servers.zookeeper import Ensemble, ZooKeeperServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture(scope="session")
def three() -> Iterator[Ensemble]:
    with Ensemble() as ensemble:
        yield ensemble


@pytest.fixture(scope="session")
def three_apart() -> Iterator[Ensemble]:
    """Three that can be cut off from each other."""
    with Ensemble(by_proxies=True) as ensemble:
        yield ensemble


@pytest.fixture
def chroot() -> str:
    """Where nobody has been before."""
    return f"/engine-{next(_numbers)}"


@pytest.fixture
def url(server: ZooKeeperServer, chroot: str) -> str:
    return server.url + chroot


@pytest.fixture
def proxy(server: ZooKeeperServer) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", server.port) as proxy:
        yield proxy


@pytest.fixture
def far_url(proxy: Proxy, chroot: str) -> str:
    """The same place, by way of the proxy."""
    return f"zookeeper://127.0.0.1:{proxy.port}{chroot}"
