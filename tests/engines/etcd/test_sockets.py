"""Sockets: every wait ends at a moment on the clock, and only the reader of a stream closes its socket."""

from __future__ import annotations

import signal
import struct
import threading
from collections.abc import Iterator

import pytest

from holdfast import EngineUnavailable
from holdfast.core.urls import parse
from holdfast.engines.etcd.address import parse_address
from holdfast.engines.etcd.http2 import CallFailed, Conversation
from holdfast.engines.etcd.sockets import Stream
from holdfast.engines.etcd.wire import SERVICE, WATCH
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.etcd import EtcdServer
from tests.engines.etcd.conftest import Connect
from tests.engines.etcd.test_wire_faults import through


@pytest.fixture
def ticking() -> Iterator[None]:
    """A signal ten times a second, as of a profiler: it interrupts every system call."""
    former = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, former)


@pytest.mark.usefixtures("ticking")
@pytest.mark.parametrize("way", ["requests", "replies"])
def test_a_periodic_signal_does_not_prolong_the_wait_for_a_silent_server(
    connect: Connect, proxy: Proxy, way: str
) -> None:
    locks = connect(through(proxy), ttl=60.0)
    locks.lock("warm-up").acquire().release()
    silent = proxy.requests if way == "requests" else proxy.replies
    silent.set("stall")
    healing = threading.Timer(15.0, proxy.heal)
    healing.start()
    with pytest.raises(EngineUnavailable):
        locks.lock("k").acquire(wait=0.5)
    assert silent.mode == "stall", "the caller has waited until the server spoke again"
    healing.cancel()
    proxy.heal()


def test_a_stream_that_another_thread_ends_is_closed_by_its_reader(server: EtcdServer) -> None:
    stream = Stream(parse_address(parse(server.url)), server.endpoint, SERVICE + WATCH, "")
    failed: list[CallFailed] = []

    def read() -> None:
        try:
            while True:
                stream.receive()
        except CallFailed as error:
            failed.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    stream.end()
    reader.join(5.0)

    assert (len(failed), stream._socket.fileno() == -1) == (1, False)
    stream.close()
    stream.send(b"nothing is sent any more")
    stream.end()


def test_a_stream_whose_server_takes_nothing_does_not_hold_up_who_sends(proxy: Proxy) -> None:
    """What it does not take is left to the reader."""
    stream = Stream(parse_address(parse(through(proxy))), f"127.0.0.1:{proxy.port}", SERVICE + WATCH, "")
    proxy.requests.set("stall")
    stream._talk._window = stream._talk._room = 2**31
    for _ in range(200):
        stream.send(b"x" * 65536)

    assert stream._unsent
    stream.close()


@pytest.mark.parametrize(("last", "refused"), [(0, True), (1, False), (2**31 - 1, False)])
def test_a_farewell_that_leaves_our_call_out_ends_it_as_not_sent(last: int, refused: bool) -> None:
    talk = Conversation(parse_address(parse("etcd://h")), "h:1")
    talk.ask("/m", b"", "", 1.0)
    talk.feed(struct.pack(">IBIII", 8 << 8 | 7, 0, 0, last, 0))

    assert talk.over
    assert talk.reply.ended is refused
    if refused:
        with pytest.raises(CallFailed) as failed:
            talk.answer()
        assert not failed.value.sent
