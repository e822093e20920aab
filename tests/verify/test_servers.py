"""Servers that the verifier starts."""

from __future__ import annotations

import signal

from holdfast.verify.servers.redis import RedisServer


def test_a_server_that_is_stopped_is_not_ready() -> None:
    server = RedisServer()
    server.start()
    try:
        server.pause()
        assert not server.is_ready()
        server.resume()
        server.wait_ready()
    finally:
        server.close()


class Stubborn(RedisServer):
    """Asked to end in order, it does nothing of the kind."""

    orderly = signal.SIGCONT


def test_a_server_that_does_not_end_in_order_is_ended_the_hard_way() -> None:
    with Stubborn() as server:
        server.stop(within=0.2)

        assert not server.running
