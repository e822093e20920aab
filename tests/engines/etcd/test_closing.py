"""A connection that is made in the moment in which nobody wants it any more is closed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial

import pytest

from holdfast.core.urls import parse
from holdfast.engines.etcd import steps
from holdfast.engines.etcd.address import parse_address
from holdfast.engines.etcd.batch import EtcdAsyncioPort
from holdfast.engines.etcd.sockets import LoopConnection, Stream
from holdfast.engines.etcd.wire import SERVICE, WATCH, Wire
from holdfast.runtime import clock
from holdfast.verify.servers.etcd import EtcdServer
from tests.conformance.stage import eventually

STOPS: dict[str, Callable[[EtcdAsyncioPort, asyncio.Task[object]], object]] = {
    "closed": lambda port, call: port.close(),
    "cancelled": lambda port, call: call.cancel(),
}


@pytest.mark.parametrize("how", STOPS)
async def test_whatever_turn_of_the_loop_it_is_stopped_in_nothing_stays_open(
    server: EtcdServer, namespace: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[asyncio.BaseTransport] = []
    connected = LoopConnection.connection_made

    def count(connection: LoopConnection, transport: asyncio.BaseTransport) -> None:
        made.append(transport)
        connected(connection, transport)

    def over(port: EtcdAsyncioPort) -> bool:
        return not port._under_way and all(transport.is_closing() for transport in made)

    monkeypatch.setattr(LoopConnection, "connection_made", count)
    wire = Wire(parse_address(parse(server.url)))
    look = steps.look(namespace.encode())
    early, turn = True, 0
    while early:
        turn += 1
        port = EtcdAsyncioPort(wire, asyncio.get_running_loop())
        call: asyncio.Task[object] = asyncio.create_task(port.call(look, clock.now() + 10.0))
        for _ in range(turn):
            await asyncio.sleep(0)
        early = not call.done()
        STOPS[how](port, call)
        await asyncio.gather(call, return_exceptions=True)
        port.close()
        # What travels together goes on without whoever was cancelled.
        await eventually(partial(over, port))
        made.clear()
    wire.close()
    assert turn > 3


def test_a_stream_that_breaks_before_its_first_word_is_closed(
    server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[socket.socket] = []

    def breaks(stream: Stream) -> None:
        opened.append(stream._socket)
        raise ConnectionResetError

    monkeypatch.setattr(Stream, "_flush", breaks)

    with pytest.raises(ConnectionResetError):
        Stream(parse_address(parse(server.url)), server.endpoint, SERVICE + WATCH, "")
    assert [each.fileno() for each in opened] == [-1]
