"""Handshakes under way are counted, and only those."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from holdfast.server.complaints import Complaints
from holdfast.server.handshakes import SPARE, Handshakes


def test_one_that_is_over_counts_no_more() -> None:
    handshakes = Handshakes(lambda: 1, Complaints())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for _ in range(2 * SPARE):
            with handshakes.one(ours, "peer"):
                assert len(handshakes) == 1

        assert len(handshakes) == 0
        theirs.setblocking(False)
        theirs.sendall(b"still open")


def test_one_that_is_gone_already_is_given_up_without_trouble() -> None:
    handshakes = Handshakes(lambda: 0, Complaints())
    with ExitStack() as stack:
        for number in range(SPARE + 1):
            wire = stack.enter_context(socket.socket())
            stack.enter_context(handshakes.one(wire, f"peer {number}"))
            wire.close()
        assert len(handshakes) == SPARE

    assert len(handshakes) == 0
