"""What a loop believes of descriptors stays true, whatever a signal handler raises in the loop's thread."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from holdfast.engines.etcd.address import Address as EtcdAddress
from holdfast.engines.etcd.sockets import LoopConnection
from holdfast.engines.resp.tasks import Stream
from holdfast.engines.resp.wire import Address
from holdfast.runtime.asyncio import connect, within
from tests.faults.injection import Injected
from tests.faults.watched_loop import WatchedLoop

IN_TIME = 2.0

pytestmark = [
    pytest.mark.usefixtures("garbage_is_collected"),
    # A connection that was just being opened, and asyncio's own warning of it.
    pytest.mark.filterwarnings(
        "ignore:unclosed:ResourceWarning", "ignore:Exception ignored:pytest.PytestUnraisableExceptionWarning"
    ),
]


@pytest.fixture
def loop() -> Iterator[WatchedLoop]:
    made = WatchedLoop()
    yield made
    made.loop.close()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as listening:
        yield listening


class Silent(asyncio.Protocol):
    """A protocol that says nothing."""

    transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()


def test_a_connection_that_is_interrupted_while_it_is_made_leaves_no_descriptor(
    loop: WatchedLoop, server: socket.socket
) -> None:
    before, at, going_on = loop.watched, 0, True
    while going_on:
        protocol = Silent()

        async def connected(made: Silent = protocol) -> None:
            await connect(loop.loop, lambda: made, server.getsockname(), None)

        going_on = loop.struck(connected, at)
        loop.settle()
        protocol.close()
        loop.settle()
        assert loop.watched == before, f"at moment {at}"
        at += 1
    assert at > 10


@pytest.mark.parametrize("events", ["read", "write", "read and write"])
def test_a_new_connection_is_watched_though_the_loop_believes_that_it_watches_its_number_already(
    loop: WatchedLoop, server: socket.socket, events: str
) -> None:
    one, other = socket.socketpair()
    if "read" in events:
        loop.loop.add_reader(one, lambda: None)
    if "write" in events:
        loop.loop.add_writer(one, lambda: None)
    number = one.fileno()
    one.close()  # while the loop watches it, as an interrupted transport does
    protocol = Silent()

    async def connected() -> int:
        await within(IN_TIME, connect(loop.loop, lambda: protocol, server.getsockname(), None))
        assert protocol.transport is not None
        return int(protocol.transport.get_extra_info("socket").fileno())

    try:
        assert loop.run(connected) == number
    finally:
        protocol.close()
        other.close()
        loop.settle()
    assert number not in loop.watched


def test_a_protocol_knows_its_connection_though_the_loop_was_interrupted_while_it_told_it(
    loop: WatchedLoop, server: socket.socket
) -> None:
    class Interrupted(Silent):
        calls = 0

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.calls += 1
            if self.calls == 1:
                raise Injected
            super().connection_made(transport)

    protocol = Interrupted()
    loop.run(lambda: connect(loop.loop, lambda: protocol, server.getsockname(), None))
    assert protocol.transport is not None
    protocol.close()
    loop.settle()


Made = Callable[[WatchedLoop, tuple[str, int]], Callable[[], None]]


def stream(loop: WatchedLoop, address: tuple[str, int]) -> Callable[[], None]:
    made = Stream(Address(*address), loop.loop)
    loop.run(lambda: connect(loop.loop, lambda: made, address, None))
    return lambda: made.end("it was closed")


def etcd_connection(loop: WatchedLoop, address: tuple[str, int]) -> Callable[[], None]:
    target = f"{address[0]}:{address[1]}"
    place = EtcdAddress((target,), f"etcd://{target}")
    return cast(LoopConnection, loop.run(lambda: LoopConnection.open(place, target, loop.loop, IN_TIME))).close


@pytest.mark.parametrize("make", [stream, etcd_connection], ids=lambda make: make.__name__)
def test_a_connection_whose_close_was_interrupted_leaves_no_descriptor(
    loop: WatchedLoop, server: socket.socket, make: Made
) -> None:
    before, at, going_on = loop.watched, 0, True
    while going_on:
        close = make(loop, server.getsockname())

        async def closed(close: Callable[[], None] = close) -> None:
            close()

        going_on = loop.struck(closed, at)
        close()
        loop.settle()
        assert loop.watched == before, f"at moment {at}"
        at += 1
    assert at > 5
