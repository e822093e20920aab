"""TLS handshakes under way: no more of them than there are places for connections."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from holdfast.server.complaints import Complaints

SPARE = 64
"""How many there may be where no place is left: whoever comes then is told so, which takes a handshake."""


class Handshakes:
    """Those who have connected and not been heard yet. Where there are too many, the one that takes longest goes."""

    def __init__(self, places: Callable[[], int], complaints: Complaints) -> None:
        self._places, self._complaints = places, complaints
        """How many connections there may be beside those that there are."""
        self._under_way: dict[socket.socket, str] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    @contextmanager
    def one(self, wire: socket.socket, peer: str) -> Iterator[None]:
        """While it lasts, this one counts."""
        while len(self._under_way) >= max(self._places(), SPARE):
            self._give_up(next(iter(self._under_way)))
        self._under_way[wire] = peer
        try:
            yield
        finally:
            self._under_way.pop(wire, None)

    def _give_up(self, wire: socket.socket) -> None:
        peer = self._under_way.pop(wire)
        self._complaints.add("TLS handshake refused", peer=peer, problem="others came, and it was not over yet")
        with suppress(OSError):  # it has just gone by itself
            wire.shutdown(socket.SHUT_RDWR)
