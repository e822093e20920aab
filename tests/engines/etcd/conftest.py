"""One etcd for each test file; what a test writes is in a namespace of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.etcd import EtcdServer, newer_etcd

_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=["3.4", "3.5"])
def server(request: pytest.FixtureRequest) -> Iterator[EtcdServer]:
    """The etcd of the system, and a newer one."""
    with EtcdServer(binary=newer_etcd() if request.param == "3.5" else None) as server:
        yield server


@pytest.fixture
def namespace() -> str:
    """Where nobody has been before."""
    return f"test-{next(_numbers)}"


@pytest.fixture
def proxy(server: EtcdServer) -> Iterator[Proxy]:
    """What stands between a client and the server."""
    with Proxy(server.host, server.port) as proxy:
        yield proxy


Connect = Callable[..., holdfast.Client]


@pytest.fixture
def connect(server: EtcdServer, namespace: str, proxy: Proxy) -> Iterator[Connect]:
    """Makes clients of one namespace, and closes them while there is a way through the proxy."""
    clients: list[holdfast.Client] = []

    def make(url: str | None = None, **settings: Any) -> holdfast.Client:
        client = holdfast.connect(url or server.url, namespace=namespace, **settings)
        clients.append(client)
        return client

    yield make
    proxy.heal()
    for client in clients:
        client.close()
