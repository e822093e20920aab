"""A network that is made for servers."""

from __future__ import annotations

import socket

from holdfast.verify.network import Network
from holdfast.verify.servers.redis import RedisServer
from tests.faults.child import tell
from tests.faults.children import Child, eventually


def devices() -> set[str]:
    """Those of this machine."""
    return {name for _, name in socket.if_nameindex()}


def stand() -> None:
    """Make a network and stand there."""
    server = RedisServer()
    before = devices()
    with Network([server]):
        tell([server.host, *(devices() - before)])
        input()
    server.close()


def test_nothing_is_left_of_a_network_whose_maker_was_killed() -> None:
    with Child("tests.verify.test_network:stand") as maker:
        address, device = maker.hear()
        assert address.startswith("10.")
        assert device in devices()
        maker.kill()

        eventually(lambda: device not in devices(), "it is still there")
