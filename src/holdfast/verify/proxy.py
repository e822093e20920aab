"""A TCP proxy that makes a network go wrong on purpose: it cuts, stalls, delays, and drops what comes back."""

from __future__ import annotations

import socket
import struct
import threading
import time
from typing import Literal, Self

Mode = Literal["pass", "stall", "drop", "cut"]


class Way:
    """One direction through the proxy: what becomes of the bytes that go there."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._mode: Mode = "pass"
        self._left: int | None = None
        self._then: Mode = "pass"
        self.delay = 0.0
        """Seconds that every piece is held back."""
        self.passed = 0
        """How many bytes went through."""

    def set(self, mode: Mode, *, after: int | None = None) -> None:
        """Pass, stall, drop or cut: at once, or after so many more bytes. A cut hits one connection, once."""
        with self._changed:
            if after is None:
                self._mode, self._left = mode, None
            else:
                self._mode, self._left, self._then = "pass", after, mode
                if after == 0:
                    self._mode, self._left = mode, None
            self._changed.notify_all()

    @property
    def mode(self) -> Mode:
        """What happens to the next byte."""
        return self._mode

    def take(self, data: bytes) -> tuple[bytes, bytes, Mode]:
        """What may go through of `data`, the rest, and what happens to that. Waits while the way is stalled."""
        with self._changed:
            self._changed.wait_for(lambda: self._mode != "stall")
            if self._mode == "drop":
                return b"", b"", "drop"
            if self._mode == "cut":
                self._mode = "pass"
                return b"", data, "cut"
            if self._left is None or len(data) < self._left:
                if self._left is not None:
                    self._left -= len(data)
                self.passed += len(data)
                return data, b"", "pass"
            now, rest = data[: self._left], data[self._left :]
            self._left = None
            self._mode = "pass" if self._then == "cut" else self._then
            self.passed += len(now)
            return now, rest, self._then


class Wire:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, near: socket.socket, far: socket.socket) -> None:
        self.proxy, self.near, self.far = proxy, near, far
        self._pumps = [
            threading.Thread(target=self._pump, args=(near, far, proxy.requests), daemon=True),
            threading.Thread(target=self._pump, args=(far, near, proxy.replies), daemon=True),
        ]
        for pump in self._pumps:
            pump.start()

    def _pump(self, source: socket.socket, sink: socket.socket, way: Way) -> None:
        try:
            while data := source.recv(65536):
                while data:
                    now, data, mode = way.take(data)
                    if way.delay:
                        time.sleep(way.delay)
                    if now:
                        sink.sendall(now)
                    if mode == "cut":
                        self.cut()
                        return
        except OSError:
            self.cut()
            return
        self.cut()

    def cut(self) -> None:
        """Reset both ends: whatever is under way is lost."""
        for end in (self.near, self.far):
            try:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
            finally:
                end.close()
        self.proxy.forget(self)


class Proxy:
    """Stands between clients and one server. `requests` goes to the server, `replies` comes from it."""

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.requests, self.replies = Way(), Way()
        self.refusing = False
        """Whether new connections are cut at once."""
        self.accepted = 0
        """How many connections there were so far."""
        self._wires: set[Wire] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="holdfast-proxy", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                near.close()
                continue
            try:
                far = socket.create_connection(self.target, 5.0)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self.accepted += 1
                self._wires.add(Wire(self, near, far))

    def forget(self, wire: Wire) -> None:
        """A connection is gone."""
        with self._lock:
            self._wires.discard(wire)

    @property
    def connections(self) -> int:
        """How many connections there are now."""
        with self._lock:
            return len(self._wires)

    def cut(self) -> None:
        """Reset every connection; new ones are taken."""
        with self._lock:
            wires = list(self._wires)
        for wire in wires:
            wire.cut()

    def go_down(self) -> None:
        """Reset every connection, and every new one."""
        self.refusing = True
        self.cut()

    def heal(self) -> None:
        """Let everything through again."""
        self.refusing = False
        for way in (self.requests, self.replies):
            way.delay = 0.0
            way.set("pass")

    def close(self) -> None:
        """Take nothing more, and reset what is there."""
        # Closing alone does not wake a thread that waits for a connection.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.heal()
        self.cut()
        self._thread.join(5.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
