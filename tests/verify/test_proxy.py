"""The proxy does to a connection what it was told to do."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from holdfast.verify.proxy import Proxy


def echo(listener: socket.socket) -> None:
    """Send everything back, to anybody."""

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(4096):
                    connection.sendall(data)
            except OSError:
                return

    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=echo, args=(listener,), daemon=True)
        thread.start()
        with Proxy("127.0.0.1", listener.getsockname()[1]) as proxy:
            yield proxy
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5.0)


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), 10.0) as client:
        yield client


def said(client: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        data = client.recv(4096)
        if not data:
            return found
        found += data
    return found


def ended(client: socket.socket) -> bool:
    """Whether the connection ends, after whatever was still on its way."""
    try:
        while client.recv(4096):
            continue
    except ConnectionResetError:
        return True
    return True


def test_everything_passes(client: socket.socket) -> None:
    client.sendall(b"hello")
    assert said(client, 5) == b"hello"


def test_a_request_is_cut_at_the_byte_that_was_named(proxy: Proxy, client: socket.socket) -> None:
    proxy.requests.set("cut", after=3)
    client.sendall(b"hello")

    assert ended(client)
    assert proxy.requests.passed == 3


def test_a_reply_is_dropped_after_the_server_got_the_request(proxy: Proxy, client: socket.socket) -> None:
    proxy.replies.set("drop")
    client.sendall(b"lost")
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(4096)
    proxy.heal()
    client.settimeout(10.0)
    client.sendall(b"found")

    assert said(client, 5) == b"found"
    assert proxy.requests.passed == 9


def test_what_was_stalled_arrives_after_the_healing(proxy: Proxy, client: socket.socket) -> None:
    proxy.requests.set("stall")
    client.sendall(b"late")
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(4096)
    client.settimeout(10.0)
    proxy.heal()

    assert said(client, 4) == b"late"


def test_what_is_delayed_comes_later(proxy: Proxy, client: socket.socket) -> None:
    proxy.replies.delay = 0.2
    started = time.monotonic()
    client.sendall(b"slow")

    assert said(client, 4) == b"slow"
    assert time.monotonic() - started >= 0.2


def test_a_cut_ends_connections_and_takes_new_ones(proxy: Proxy, client: socket.socket) -> None:
    client.sendall(b"x")
    said(client, 1)
    proxy.cut()
    assert ended(client)

    with socket.create_connection(("127.0.0.1", proxy.port), 10.0) as again:
        again.sendall(b"y")
        assert said(again, 1) == b"y"


def test_while_it_is_down_new_connections_are_cut_too(proxy: Proxy, client: socket.socket) -> None:
    client.sendall(b"x")
    said(client, 1)
    proxy.go_down()
    assert ended(client)

    # A reset may come as early as that.
    with contextlib.suppress(ConnectionResetError):
        with socket.create_connection(("127.0.0.1", proxy.port), 10.0) as again:
            assert ended(again)
    assert proxy.connections == 0
    proxy.heal()
    with socket.create_connection(("127.0.0.1", proxy.port), 10.0) as again:
        again.sendall(b"y")
        assert said(again, 1) == b"y"
