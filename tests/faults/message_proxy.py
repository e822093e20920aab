"""A TCP proxy that loses, cuts off or delays one request, chosen by its number."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from dataclasses import dataclass
from typing import Literal, Self

from tests.faults.messages import Framer

Fate = Literal["lost", "unanswered", "late"]
"""A request does not arrive; or is carried out and its reply is lost; or is carried out after all is over."""
How = Literal["cut", "silence", "silent link"]
"""The connection is reset; nothing goes through any connection any more; or nothing through this one."""


@dataclass(frozen=True)
class Fault:
    """What happens to which request."""

    fate: Fate
    how: How
    number: int
    """The first request is 1."""

    def __str__(self) -> str:
        return f"request {self.number} {self.fate} by {self.how}"


class Connection:
    """One connection through the proxy."""

    def __init__(self, proxy: MessageProxy, near: socket.socket, far: socket.socket) -> None:
        self.proxy, self.near, self.far = proxy, near, far
        self.pending: list[bytes] = []
        """Requests that are to arrive late."""
        self.swallows = self.stalls = self.mutes = False
        self.cuts_reply = False
        """Whether the next bytes of the server reset it."""
        self.near_is_gone = False
        self.answered = threading.Event()
        for pump in (self._forward, self._return):
            threading.Thread(target=pump, name="message-proxy", daemon=True).start()

    @property
    def is_silent(self) -> bool:
        return self.swallows or self.stalls or self.mutes or bool(self.pending)

    def _forward(self) -> None:
        framer = self.proxy.framer()
        try:
            while data := self.near.recv(65536):
                for piece, is_request in framer.feed(data):
                    if not self._pass(piece, is_request):
                        return
        except OSError:
            pass  # it was reset: the same as its end
        with self.proxy.lock:
            self.near_is_gone = True
            if not self.is_silent:
                self.cut()

    def _pass(self, piece: bytes, is_request: bool) -> bool:
        """Send a piece on, or do with it what the fault says; whether the connection goes on."""
        with self.proxy.lock:
            fault = self.proxy.strike(self) if is_request else None
            if fault is not None and fault.how == "cut":
                if fault.fate == "lost":
                    self.cut()
                    return False
                if fault.fate == "late":
                    self.pending.append(piece)
                    self.near_is_gone = True
                    reset(self.near)
                    return False
                self.cuts_reply = True
            if self.stalls:
                self.pending.append(piece)
                return True
            if self.swallows:
                return True
        self.far.sendall(piece)
        return True

    def _return(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.far.recv(65536):
                self.answered.set()
                if self.cuts_reply:
                    # The server has begun to answer: it is given the time to finish what it does.
                    time.sleep(0.02)
                    break
                if self.near_is_gone or self.mutes or self.swallows:
                    continue
                self.near.sendall(data)
        with self.proxy.lock:
            self.cut()

    def heal(self) -> None:
        """Let late requests arrive. A connection that has lost bytes ends."""
        lossy = self.swallows or self.mutes or self.near_is_gone
        self.swallows = self.stalls = self.mutes = False
        pending, self.pending = self.pending, []
        self.answered.clear()
        with contextlib.suppress(OSError):
            for piece in pending:
                self.far.sendall(piece)
        if lossy and not pending:
            self.cut()
        elif lossy:
            threading.Thread(target=self._cut_when_answered, daemon=True).start()

    def _cut_when_answered(self) -> None:
        self.answered.wait(1.0)
        with self.proxy.lock:
            self.cut()

    def cut(self) -> None:
        """Reset both ends."""
        self.near_is_gone = True
        reset(self.near)
        reset(self.far)
        self.proxy.connections.discard(self)


def reset(end: socket.socket) -> None:
    """End a connection at once. What was sent and not received is lost."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RDWR)
    end.close()


class MessageProxy:
    """Stands between clients and one server, and counts their requests."""

    def __init__(self, port: int, framer: type[Framer]) -> None:
        self.target, self.framer = ("127.0.0.1", port), framer
        self.lock = threading.RLock()
        self.connections: set[Connection] = set()
        self.count = 0
        """How many requests there were since the proxy was armed."""
        self.struck = False
        self._fault: Fault | None = None
        self._everything: Fault | None = None
        """The fault that has silenced every connection."""
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="message-proxy", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self.target, 5.0)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                connection = Connection(self, near, far)
                self.connections.add(connection)
                if self._everything is not None:
                    self._silence(connection, self._everything.fate)

    def arm(self, fault: Fault | None) -> None:
        """Count from now on; let the fault strike when its request comes."""
        with self.lock:
            self._fault, self.count, self.struck = fault, 0, False

    def strike(self, connection: Connection) -> Fault | None:
        """Count a request; the fault, if this is the one that it is for."""
        self.count += 1
        fault = self._fault
        if fault is None or self.count != fault.number:
            return None
        self.struck, self._fault = True, None
        if fault.how == "silence":
            self._everything = fault
            for each in self.connections:
                self._silence(each, fault.fate)
        elif fault.how == "silent link":
            self._silence(connection, fault.fate)
        return fault

    @staticmethod
    def _silence(connection: Connection, fate: Fate) -> None:
        connection.swallows = fate == "lost"
        connection.mutes = fate == "unanswered"
        connection.stalls = fate == "late"

    def heal(self) -> None:
        """Let everything through again, and what is late first."""
        with self.lock:
            self._fault = self._everything = None
            for connection in list(self.connections):
                connection.heal()

    def close(self) -> None:
        """Take nothing more, and reset what is there."""
        # Closing alone does not wake a thread that waits for a connection.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self.lock:
            for connection in list(self.connections):
                connection.cut()
        self._thread.join(5.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
