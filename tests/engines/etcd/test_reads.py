"""Reads whose client goes away in the middle: an etcd before 3.5.5 dies of them if they are transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from holdfast.core.urls import parse
from holdfast.engines.etcd import steps
from holdfast.engines.etcd.address import parse_address
from holdfast.engines.etcd.batch import EtcdAsyncioPort
from holdfast.engines.etcd.keys import end_of
from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.wire import TXN, Request, Wire
from holdfast.runtime import clock
from holdfast.verify.servers.etcd import EtcdServer, newer_etcd

START = b"/reads/"
TRIES = 300


@pytest.fixture
def server() -> Iterator[EtcdServer]:
    """An etcd 3.5.1 of our own."""
    with EtcdServer(binary=newer_etcd()) as server:
        yield server


@pytest.fixture
async def wire(server: EtcdServer) -> Wire:
    """The way to it; there is something to read in it."""
    wire = Wire(parse_address(parse(server.url)))
    port = EtcdAsyncioPort(wire, asyncio.get_running_loop())
    for number in range(400):
        await port.call(steps.step([], [steps.put(START + b"%d" % number, b"x" * 4000)]), clock.now() + 10.0)
    port.close()
    return wire


async def ask_and_go_away(server: EtcdServer, wire: Wire, read: Request) -> None:
    """Sooner or later, again and again, as long as somebody is there to be asked."""
    for number in range(TRIES):
        if not server.running:
            return
        port = EtcdAsyncioPort(wire, asyncio.get_running_loop())
        asked = asyncio.create_task(port.call(read, clock.now() + 10.0))
        await asyncio.sleep(number % 10 / 1000)
        port.close()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)


async def test_who_goes_away_in_the_middle_of_a_look_harms_nobody(server: EtcdServer, wire: Wire) -> None:
    await ask_and_go_away(server, wire, steps.look(START, end_of(START)))

    assert server.healthy()


async def test_who_goes_away_in_the_middle_of_a_transaction_that_only_reads_kills_the_server(
    server: EtcdServer, wire: Wire
) -> None:
    reads = message("RequestOp")(request_range=message("RangeRequest")(key=START, range_end=end_of(START)))

    await ask_and_go_away(server, wire, Request(TXN, message("TxnRequest")(success=[reads, reads, reads])))

    assert not server.running
    assert "unexpected error during txn" in server.log.read_text()


def test_a_transaction_that_only_reads_is_not_built() -> None:
    with pytest.raises(AssertionError):
        steps.step([steps.absent(b"k")], [steps.get(b"k")], [steps.get_all(b"k")])
