"""What happened is heard whole, also when the stream ends in the middle of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
