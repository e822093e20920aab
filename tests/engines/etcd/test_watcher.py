"""What happened is heard whole, also when the stream ends in the middle of it."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.core.urls import parse
from holdfast.engines.etcd import steps
from holdfast.engines.etcd.address import parse_address
from holdfast.engines.etcd.watcher import Watcher
from holdfast.engines.etcd.wire import EtcdPort, Wire
from holdfast.runtime import clock
from holdfast.verify.servers.etcd import EtcdServer
from tests.servers.process import wait_until

PORTION = 1_000
"""How many revisions etcd lets one who is late catch up with at a time."""


def test_a_stream_that_ends_between_two_portions_is_taken_up_where_it_ended(server: EtcdServer, namespace: str) -> None:
    wire = Wire(parse_address(parse(server.url)))
    watcher = Watcher(wire)
    port, key = EtcdPort(wire), f"{namespace}/k".encode()
    try:
        written = [
            port.call(steps.step([], [steps.put(key, b"v")]), clock.now() + 10.0).revision for _ in range(PORTION + 200)
        ]
        heard: list[int] = []
        portions: list[int] = []

        def hear(events: Sequence[Any] | None) -> None:
            assert events is not None
            portions.append(len(events))
            heard.extend(event.kv.mod_revision for event in events)
            if len(portions) == 1:
                watcher.restart()

        watcher.watch("all", key, written[0], hear)
        wait_until(lambda: written[-1] in heard, 30.0, "the last one being heard")

        assert portions[0] < len(written), "or nothing is tried here"
        assert sorted(set(heard)) == written
    finally:
        watcher.stop()
        wire.close()


class Farewells:
    """Passes everything on between a client and etcd; says in etcd's place that it goes, and leaves the way open."""

    def __init__(self, server: EtcdServer) -> None:
        self._target = (server.host, server.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"etcd://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._ends: list[socket.socket] = []
        self.near: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        try:
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._ends += (near, far)
                self.near.append(near)
                threading.Thread(target=self._pass, args=(near, far), daemon=True).start()
                threading.Thread(target=self._pass_frames, args=(far, near), daemon=True).start()
        except OSError:
            return

    @staticmethod
    def _pass(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            return

    def _pass_frames(self, source: socket.socket, sink: socket.socket) -> None:
        """Whole frames only, so that a farewell never comes in the middle of one."""
        buffer = b""
        try:
            while data := source.recv(65536):
                buffer += data
                while len(buffer) >= 9 and len(buffer) >= (size := 9 + int.from_bytes(buffer[:3], "big")):
                    with self._lock:
                        sink.sendall(buffer[:size])
                    buffer = buffer[size:]
        except OSError:
            return

    def say_farewell(self, last: int) -> None:
        """GOAWAY on every connection: `last` is the last call that is still taken on."""
        with self._lock:
            for near in self.near:
                near.sendall(struct.pack(">IBIII", 8 << 8 | 7, 0, 0, last, 0))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._ends:
            end.close()


@pytest.mark.parametrize("last", [0, 1, 2**31 - 1], ids=["without our stream", "with our stream", "with all"])
def test_a_watch_goes_on_at_once_when_its_member_says_that_it_goes(
    server: EtcdServer, namespace: str, last: int
) -> None:
    """The stream is not ended by it: a server that takes no new calls lets those go on that it knows of."""
    between = Farewells(server)
    wire, direct = Wire(parse_address(parse(between.url))), Wire(parse_address(parse(server.url)))
    watcher = Watcher(wire)
    key, written = f"{namespace}/k".encode(), itertools.count()

    def write() -> int:
        return EtcdPort(direct).call(steps.step([], [steps.put(key, b"%d" % next(written))]), clock.now() + 10).revision

    heard: list[int] = []
    try:
        first = write()
        watcher.watch("all", key, first, lambda events: heard.extend(event.kv.mod_revision for event in events or ()))
        wait_until(lambda: first in heard, 10.0, "the first event")
        between.say_farewell(last)
        second = write()

        wait_until(lambda: second in heard, 5.0, "an event after the farewell, before the stream counts as silent")
        # On a busy machine the next connection may be given up too.
        wait_until(lambda: len(between.near) >= 2, 5.0, "another connection")
        third = write()
        wait_until(lambda: third in heard, 5.0, "an event over the other connection")
        assert heard == [first, second, third]
    finally:
        watcher.stop()
        for each in (wire, direct):
            each.close()
        between.close()
