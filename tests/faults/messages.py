"""Where one request of a client ends and the next begins, in the protocols of the engines."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Protocol

Piece = tuple[bytes, bool]
"""Bytes that go on together, and whether they are a request: set-up and keep-alive are none."""


class Framer(Protocol):
    """Cuts what one connection's client sends into pieces."""

    def feed(self, data: bytes) -> Iterator[Piece]: ...


class RespFramer:
    """RESP, of Redis and of the lock server: each command is a request."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> Iterator[Piece]:
        self.rest += data
        while (end := self._end()) is not None:
            piece, self.rest = self.rest[:end], self.rest[end:]
            yield piece, True

    def _end(self) -> int | None:
        """Where the first command ends, if it is there as a whole."""
        line = self.rest.find(b"\r\n")
        if line < 0:
            return None
        assert self.rest[:1] == b"*", f"no command: {self.rest[:40]!r}"
        at = line + 2
        for _ in range(int(self.rest[1:line])):
            line = self.rest.find(b"\r\n", at)
            if line < 0:
                return None
            at = line + 2 + int(self.rest[at + 1 : line]) + 2
        return at if at <= len(self.rest) else None


class ZooKeeperFramer:
    """Frames with their length in front. The first opens the session; a ping has the number -2."""

    def __init__(self) -> None:
        self.rest = b""
        self.open = False

    def feed(self, data: bytes) -> Iterator[Piece]:
        self.rest += data
        while len(self.rest) >= 8 and len(self.rest) >= (end := 4 + struct.unpack_from(">i", self.rest)[0]):
            piece, self.rest = self.rest[:end], self.rest[end:]
            ping = struct.unpack_from(">i", piece, 4)[0] == -2
            yield piece, self.open and not ping
            self.open = True


class Http2Framer:
    """gRPC: a DATA frame is a request, or a message of a stream. Everything else goes through."""

    PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

    def __init__(self) -> None:
        self.rest = b""
        self.greeted = False

    def feed(self, data: bytes) -> Iterator[Piece]:
        self.rest += data
        if not self.greeted:
            if len(self.rest) < len(self.PREFACE):
                return
            self.greeted = True
            piece, self.rest = self.rest[: len(self.PREFACE)], self.rest[len(self.PREFACE) :]
            yield piece, False
        while len(self.rest) >= 9 and len(self.rest) >= (end := 9 + int.from_bytes(self.rest[:3])):
            piece, self.rest = self.rest[:end], self.rest[end:]
            yield piece, piece[3] == 0


class PostgresFramer:
    """A request ends with a Query, a Sync or a Flush; what belongs to it goes on together with that."""

    SETTING_UP = (80877103, 80877104)
    """TLS and GSS: a question that a start-up message follows."""

    def __init__(self) -> None:
        self.rest = self.request = b""
        self.started = False

    def feed(self, data: bytes) -> Iterator[Piece]:
        self.rest += data
        while True:
            head = 1 if self.started else 0
            if len(self.rest) < head + 8 - head * 4:
                return
            end = head + struct.unpack_from(">i", self.rest, head)[0]
            if len(self.rest) < end:
                return
            piece, self.rest = self.rest[:end], self.rest[end:]
            if not self.started:
                self.started = struct.unpack_from(">i", piece, 4)[0] not in self.SETTING_UP
                yield piece, False
            elif piece[:1] in b"pX":
                yield piece, False
            else:
                self.request += piece
                if piece[:1] in b"QSHF":
                    request, self.request = self.request, b""
                    yield request, True


FRAMERS: dict[str, type[Framer]] = {
    "redis": RespFramer,
    "redlock": RespFramer,
    "holdfast": RespFramer,
    "zookeeper": ZooKeeperFramer,
    "etcd": Http2Framer,
    "postgresql": PostgresFramer,
}
"""By the scheme of the URL."""
