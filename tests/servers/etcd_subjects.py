"""etcd as the conformance suite sees it: each test finds it emptied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.wire import serialize
from holdfast.verify.servers.etcd import EtcdServer, newer_etcd

_running: dict[str, EtcdServer] = {}
"""By URL."""


def empty(server: EtcdServer) -> None:
    """Remove every key. Leases end by themselves."""
    with grpc.insecure_channel(server.endpoint, [("grpc.enable_http_proxy", 0)]) as channel:
        delete = channel.unary_unary("/etcdserverpb.KV/DeleteRange", serialize, message("DeleteResponse").FromString)
        delete(message("DeleteRequest")(key=b"\0", range_end=b"\0"), timeout=5.0, wait_for_ready=True)


@contextmanager
def _served(server: EtcdServer) -> Iterator[Callable[[], str]]:
    with server:

        def emptied() -> str:
            empty(server)
            return server.url

        _running[server.url] = server
        yield emptied
        del _running[server.url]


@contextmanager
def etcd(_: Path) -> Iterator[Callable[[], str]]:
    """The etcd of the system, 3.4 on Debian 12."""
    with _served(EtcdServer()) as fresh_url:
        yield fresh_url


@contextmanager
def etcd_3_5(_: Path) -> Iterator[Callable[[], str]]:
    """A newer one."""
    with _served(EtcdServer(binary=newer_etcd())) as fresh_url:
        yield fresh_url


@contextmanager
def etcd_stands_still(url: str) -> Iterator[None]:
    """The server is stopped: connections stay open, nothing is answered."""
    server = _running[url]
    server.pause()
    try:
        yield
    finally:
        server.resume()
