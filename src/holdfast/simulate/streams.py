"""Connections across the simulated network: bytes arrive in order and once, or the connection is broken.

Whoever is at an end of a broken one may hear of it, or nothing at all, as when a machine vanishes or a cable is cut.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.runtime.simulated import Machine
from holdfast.simulate.network import Network

if TYPE_CHECKING:
    from holdfast.simulate.loop import SimulatedLoop

OVER = None
"""What arrives after the last bytes if the other end was closed."""


class End(Protocol):
    """What is at one end of a connection."""

    def received(self, data: bytes) -> None: ...

    def lost(self, problem: str) -> None: ...


class Pipe:
    """One direction. Messages of the network may overtake each other; what they carry does not."""

    def __init__(self, network: Network, sender: Machine, receiver: Machine, broke: Callable[[], None]) -> None:
        self._network, self._sender, self._receiver, self._broke = network, sender, receiver, broke
        self._queue: deque[bytes | None] = deque()
        self.end: End | None = None
        """Who takes what arrives."""
        self.broken = False

    def send(self, data: bytes | None) -> None:
        """Send bytes, or OVER."""
        if self.broken:
            return
        self._queue.append(data)
        if not self._network.carry(self._sender, self._receiver, self._arrive):
            # What comes after a gap can never be read.
            self._queue.pop()
            self.broken = True
            self._broke()

    def _arrive(self) -> None:
        data = self._queue.popleft() if self._queue else b""
        if self.end is None or data == b"":
            return
        if data is OVER:
            self.end.lost("the other end closed the connection")
        else:
            self.end.received(data)

    def close(self) -> None:
        """Nothing arrives any more."""
        self.broken, self.end = True, None
        self._queue.clear()


class Cable:
    """A connection between a client's machine and a server's."""

    def __init__(self, network: Network, client: Machine, server: Machine) -> None:
        self.network, self.client, self.server = network, client, server
        self.up = Pipe(network, client, server, self._broke)
        self.down = Pipe(network, server, client, self._broke)

    def _broke(self) -> None:
        """Each end may hear of it: a reset gets through, or does not."""
        for pipe, machine in ((self.up, self.server), (self.down, self.client)):
            if self.network.world.random.random() < 0.5:
                self.reset(pipe, machine)

    def reset(self, pipe: Pipe, machine: Machine) -> None:
        """Tell who reads from this pipe that the connection is gone, in a moment."""

        def tell() -> None:
            end = pipe.end
            pipe.close()
            if end is not None:
                end.lost("the connection was lost")

        self.network.later(tell, machine)

    def server_died(self) -> None:
        """Its process is gone. If only that is gone, its machine says so; if the power is, nobody does."""
        self.up.close()
        self.down.broken = True
        if self.network.world.random.random() < 0.5:
            self.reset(self.down, self.client)


class ServerEnd(asyncio.Transport):
    """A server's end: a transport for its protocol, in its loop."""

    def __init__(self, cable: Cable, loop: SimulatedLoop, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._cable, self._loop, self._protocol = cable, loop, protocol
        self._closing = False
        self._reading = True
        self._unread: list[bytes] = []
        cable.up.end = self

    def received(self, data: bytes) -> None:
        self._unread.append(data)
        self._loop.call_soon(self._hand_on)

    def _hand_on(self) -> None:
        while self._unread and self._reading and not self._closing:
            self._protocol.data_received(self._unread.pop(0))

    def lost(self, problem: str) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._protocol.connection_lost, ConnectionResetError(problem))

    def write(self, data: Any) -> None:
        self._cable.down.send(bytes(data))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._cable.up.close()
            self._cable.down.send(OVER)
            self._loop.call_soon(self._protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._loop.call_soon(self._hand_on)

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._cable.client.name, 1) if name == "peername" else default
