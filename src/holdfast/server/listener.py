"""Takes those who connect, and tells the log of those who could not be taken.

The loop's own servers do so in silence. uvloop closes whoever comes while no file can be opened, and a client that
cannot agree with OpenSSL is a broken wire to it, of which nobody is told.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from holdfast.server.addresses import Address
from holdfast.server.complaints import Complaints
from holdfast.server.handshakes import Handshakes

log = logging.getLogger("holdfast.server")

BACKLOG = 1024
AT_ONCE = 64
"""How many are taken before others have their turn."""
REST = 1.0
"""Seconds until it tries again after the system had no more files, or no memory, for a connection."""

Speaker = Callable[[], asyncio.Protocol]
"""Makes whoever speaks on a new connection."""


class Listener:
    """One socket that listens."""

    def __init__(
        self,
        wire: socket.socket,
        speaker: Speaker,
        tls: ssl.SSLContext | None,
        patience: Callable[[], float],
        handshakes: Handshakes,
        complaints: Complaints,
    ) -> None:
        self._wire, self._speaker, self._tls = wire, speaker, tls
        self._handshakes, self._complaints = handshakes, complaints
        self._patience = patience
        """Seconds for a handshake."""
        self._loop = asyncio.get_running_loop()
        self._arrivals: set[asyncio.Task[None]] = set()
        self._resting: asyncio.TimerHandle | None = None
        self._failed = False
        """Whether the last that came could not be taken."""
        self.address = str(Address(*wire.getsockname()[:2]))
        self._listen()

    def _listen(self) -> None:
        self._resting = None
        self._loop.add_reader(self._wire, self._accept)

    def close(self) -> None:
        """Take nobody any more. Who was taken stays."""
        if self._resting is not None:
            self._resting.cancel()
        elif self._wire.fileno() >= 0:
            self._loop.remove_reader(self._wire)
        self._wire.close()

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                wire, peer = self._wire.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(error)
                return
            if self._failed:
                self._failed = False
                log.info("connections are taken again", extra={"address": self.address})
            wire.setblocking(False)
            arrival = self._loop.create_task(self._take(wire, str(Address(*peer[:2]))))
            self._arrivals.add(arrival)
            arrival.add_done_callback(self._arrivals.discard)

    def _rest(self, error: OSError) -> None:
        """Leave those who come to the kernel for a while: it would say the same again at once."""
        if not self._failed:
            self._failed = True
            log.warning("connections cannot be taken", extra={"address": self.address, "problem": str(error)})
        self._loop.remove_reader(self._wire)
        self._resting = self._loop.call_later(REST, self._listen)

    async def _take(self, wire: socket.socket, peer: str) -> None:
        try:
            if self._tls is None:
                await self._loop.connect_accepted_socket(self._speaker, wire)
                return
            with self._handshakes.one(wire, peer):
                await self._loop.connect_accepted_socket(
                    self._speaker, wire, ssl=self._tls, ssl_handshake_timeout=self._patience()
                )
        except (ssl.SSLError, ConnectionAbortedError) as error:
            # Aborted is who took too long.
            self._complaints.add("TLS handshake refused", peer=peer, problem=str(error))
        except OSError as error:
            # Whoever only looks whether somebody listens, as load balancers do, has done nothing wrong.
            log.debug("connection ended before its first request", extra={"peer": peer, "problem": repr(error)})


async def bind(address: Address) -> list[socket.socket]:
    """Sockets that listen there: a name may stand for several addresses."""
    # The loop knows about names, families and what may be used again; only listening is not left to it.
    bound = await asyncio.get_running_loop().create_server(asyncio.Protocol, *address, start_serving=False)
    found = [wire.dup() for wire in bound.sockets]
    bound.close()
    for wire in found:
        wire.setblocking(False)
        wire.listen(BACKLOG)
    return found
