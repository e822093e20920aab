"""Servers that the verifier starts."""

from __future__ import annotations

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
