"""Warnings that a stranger can cause are bounded, and none is lost."""

from __future__ import annotations

import pytest

from holdfast.server.complaints import MOST, Complaints
from tests.faults.children import eventually
from tests.servers.lock_server import LockServer


def test_those_over_the_limit_of_a_second_are_told_as_a_number(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints()
    for number in range(MOST + 5):
        complaints.add("TLS handshake refused", peer=f"peer {number}", problem="a problem")
    assert [getattr(record, "peer", None) for record in caplog.records] == [f"peer {n}" for n in range(MOST)]

    complaints.second_over()

    assert [getattr(record, "left_out", None) for record in caplog.records[MOST:]] == [5]


def test_the_next_second_tells_of_each_again(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints()
    for _ in range(MOST):
        complaints.add("TLS handshake refused", peer="peer")
    complaints.second_over()
    complaints.add("TLS handshake refused", peer="another")
    complaints.second_over()

    assert [record.message for record in caplog.records] == ["TLS handshake refused"] * (MOST + 1)


def test_whoever_says_nonsense_again_and_again_does_not_fill_the_log() -> None:
    with LockServer(config="[limits]\nconnections = 2\n") as server:
        with server.speak() as one, server.speak() as two:
            one("PING")
            two("PING")
            for _ in range(60):
                with server.speak() as third:
                    assert str(third.read()).startswith("HFLIMIT")
        eventually(lambda: '"left_out"' in server.log.read_text(), "no count was told")
        for _ in range(60):
            with server.speak() as wire:
                wire.raw(b"GET / HTTP/1.1\r\n")
                list(wire.rest())

        told = server.log.read_text()
        assert told.count('"connection refused"') < 60
        assert told.count('"no request"') < 60
