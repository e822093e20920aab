"""gRPC's wire: one call at a time on a connection of our own, short ones and one that goes on.

A lock is two short calls, and the runtime of gRPC spends more on each than etcd does; nor does it
cross a fork. This is the part of HTTP/2 that one call at a time needs. The server is asked to keep
no table of headers, so that what they mean follows from their bytes alone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from hpack import Decoder

from holdfast.engines.etcd.address import Address

UNKNOWN, DEADLINE_EXCEEDED, UNAVAILABLE = 2, 4, 14

_DATA, _HEADERS, _RST, _SETTINGS, _PING, _GOAWAY, _WINDOW, _CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 1, 1, 4, 8, 32
_REFUSED_STREAM = 7
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_MOST_STREAMS = 2**30
"""Stream numbers end at 2^31; a new connection starts again."""
CALLS_A_PING = 128
"""Stream numbers are odd, so that is every 64th call."""
_ROOM = 2**30
"""What the server may send before we say that there is room again."""


class CallFailed(Exception):
    """A call was not answered, or answered with an error. `sent`: whether the server may have seen it."""

    def __init__(self, code: int, details: str, sent: bool = True) -> None:
        self.code, self.details, self.sent = code, details, sent
        super().__init__(details)


_HEAD = struct.Struct(">IBI")
"""Of a frame: three bytes of length and one of kind, taken together; flags; the stream's number."""


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return _HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def _literal(name: bytes, value: bytes) -> bytes:
    """A header that nobody is to remember."""
    return b"\x00" + _text(name) + _text(value)


def _text(text: bytes) -> bytes:
    length = len(text)
    if length < 127:
        return bytes([length]) + text
    length -= 127
    head = b"\x7f"
    while length >= 128:
        head += bytes([length % 128 + 128])
        length //= 128
    return head + bytes([length]) + text


def _enveloped(message: bytes) -> bytes:
    return b"\0" + struct.pack(">I", len(message)) + message


@dataclass(slots=True)
class Reply:
    """What has come so far for one call."""

    body: bytearray
    status: int | None = None
    details: str = ""
    ended: bool = False
    refused: bool = False
    """Whether the server has said that it did nothing for the call."""


class Conversation:
    """One connection's calls, one after the other, without the socket: what comes goes in, what has to go comes out."""

    def __init__(self, address: Address, target: str) -> None:
        scheme = b"\x87" if address.tls else b"\x86"
        self._start = b"\x83" + scheme + b"\x01" + _text((address.server_name or target).encode())
        self._end = _literal(b"te", b"trailers") + b"\x0f\x10" + _text(b"application/grpc")
        self._paths: dict[str, bytes] = {}
        self._blocks: dict[bytes, tuple[int | None, str]] = {}
        self._decoder = Decoder()
        self._stream = -1
        self._buffer = bytearray()
        self._body = b""
        self._partial = b""
        self._owed = b""
        """Answers to pings. The server measures the way with every call unless it waits for one of them, and each
        would wake whoever waits for the call's answer: so they are given now and then."""
        self._consumed = 0
        self._window = self._room = self._first_window = 65535
        self._frame_size = 16384
        self._leaving = False
        self._ends = True
        """Whether the call under way has one message only."""
        self.reply = Reply(bytearray())
        # No table of headers (1), no pushes (2), as much room as there is (4).
        settings = struct.pack(">HIHIHI", 1, 0, 2, 0, 4, 2**31 - 1)
        self.out = _PREFACE + _frame(_SETTINGS, 0, 0, settings) + _frame(_WINDOW, 0, 0, struct.pack(">I", _ROOM))
        """What has to be sent."""

    @property
    def over(self) -> bool:
        """Whether nothing more is to be asked here: the server said that it goes, or numbers or room run out."""
        return self._leaving or self._stream > _MOST_STREAMS or self._consumed > _ROOM // 2

    def take_out(self) -> bytes:
        """What has to be sent now."""
        out, self.out = self.out, b""
        return out

    def ask(self, method: str, message: bytes, token: str, limit: float) -> None:
        """Begin a call."""
        self._stream += 2
        self.reply = Reply(bytearray())
        path = self._paths.get(method)
        if path is None:
            path = self._paths[method] = self._start + b"\x04" + _text(method.encode()) + self._end
        block = path + _literal(b"grpc-timeout", b"%dm" % max(1, int(limit * 1000)))
        if token:
            block += _literal(b"token", token.encode())
        self._body, self._ends = _enveloped(message), True
        self._room = self._first_window
        if self._owed and self._stream % CALLS_A_PING == 1:
            self.pay()
        self.out += _frame(_HEADERS, _END_HEADERS, self._stream, block)
        self._go_on()

    def open(self, method: str, token: str) -> None:
        """Begin a call that goes on: messages in both directions until one side ends it."""
        self._stream += 2
        self.reply = Reply(bytearray())
        self._room, self._ends = self._first_window, False
        # A member that is cut off from its leader ends the call, instead of having nothing to tell for as long.
        block = self._start + b"\x04" + _text(method.encode()) + self._end + _literal(b"hasleader", b"true")
        if token:
            block += _literal(b"token", token.encode())
        self.out += _frame(_HEADERS, _END_HEADERS, self._stream, block)

    def send(self, message: bytes) -> None:
        """One more message of a call that goes on."""
        self._body += _enveloped(message)
        self._go_on()

    def messages(self) -> list[bytes]:
        """Those that have come whole since the last look."""
        body, at = self.reply.body, 0
        found = []
        while len(body) - at >= 5:
            length = int.from_bytes(body[at + 1 : at + 5], "big")
            if len(body) - at < 5 + length:
                break
            found.append(bytes(body[at + 5 : at + 5 + length]))
            at += 5 + length
        del body[:at]
        if self._consumed > _ROOM // 64:
            room = struct.pack(">I", self._consumed)
            self.out += _frame(_WINDOW, 0, 0, room) + _frame(_WINDOW, 0, self._stream, room)
            self._consumed = 0
        return found

    def ping(self) -> None:
        """Ask whether anybody is there."""
        self.out += _frame(_PING, 0, 0, b"holdfast")

    def pay(self) -> None:
        """Answer the pings that came so far."""
        self.out += self._owed
        self._owed = b""

    def answer(self) -> bytes:
        """The answer, once the reply has ended; CallFailed if it is an error."""
        reply = self.reply
        if reply.status != 0:
            status = UNKNOWN if reply.status is None else reply.status
            raise CallFailed(status, reply.details, sent=not reply.refused)
        return bytes(reply.body[5:])

    def _go_on(self) -> None:
        """Send of the body what the server has room for."""
        while self._body and min(self._window, self._room) > 0:
            piece = self._body[: min(self._frame_size, self._window, self._room)]
            self._body = self._body[len(piece) :]
            self._window -= len(piece)
            self._room -= len(piece)
            self.out += _frame(_DATA, _END_STREAM if self._ends and not self._body else 0, self._stream, piece)

    def feed(self, data: bytes) -> None:
        """Take what has come."""
        buffer, at = self._buffer, 0
        buffer += data
        while len(buffer) - at >= 9:
            head, flags, stream = _HEAD.unpack_from(buffer, at)
            end = at + 9 + (head >> 8)
            if len(buffer) < end:
                break
            payload = bytes(buffer[at + 9 : end])
            at = end
            self._take(head & 255, flags, stream & 0x7FFFFFFF, payload)
        del buffer[:at]
        if self._body:
            self._go_on()

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        mine, reply = stream == self._stream, self.reply
        if kind == _DATA:
            self._consumed += len(payload)
            if mine:
                reply.body += _unpadded(flags, payload)
        elif kind in (_HEADERS, _CONTINUATION):
            self._partial += _unpadded(flags, payload) if kind == _HEADERS else payload
            if flags & _END_HEADERS:
                block, self._partial = self._partial, b""
                status, details = self._meaning(block)
                if mine and status is not None:
                    # Only the last headers have it.
                    reply.status, reply.details, reply.ended = status, details, True
        elif kind == _RST and mine:
            reply.status, reply.details, reply.ended = UNAVAILABLE, "the server ended the call", True
            reply.refused = int.from_bytes(payload, "big") == _REFUSED_STREAM
        elif kind == _SETTINGS and not flags & _ACK:
            self._settle(payload)
        elif kind == _PING and not flags & _ACK:
            self._owed += _frame(_PING, _ACK, 0, payload)
        elif kind == _GOAWAY:
            self._leaving = True
            if self._stream > int.from_bytes(payload[:4], "big") & 0x7FFFFFFF and not reply.ended:
                # The last call that the server has taken on was an earlier one.
                reply.status, reply.details, reply.ended = UNAVAILABLE, "the server is going away", True
                reply.refused = True
        elif kind == _WINDOW:
            room = int.from_bytes(payload, "big")
            self._window += room if stream == 0 else 0
            self._room += room if mine else 0

    def _settle(self, payload: bytes) -> None:
        for number, value in struct.iter_unpack(">HI", payload):
            if number == 4:
                self._room += value - self._first_window
                self._first_window = value
            elif number == 5:
                self._frame_size = value
        self.out += _frame(_SETTINGS, _ACK, 0, b"")

    def _meaning(self, block: bytes) -> tuple[int | None, str]:
        """The call's status and what it says, if these headers have it."""
        known = self._blocks.get(block)
        if known is not None:
            return known
        headers: dict[Any, Any] = {}
        for name, value in self._decoder.decode(block, raw=True):
            headers[bytes(name)] = bytes(value)
        status: int | None = None
        if b"grpc-status" in headers:
            status = int(headers[b"grpc-status"])
        elif headers.get(b":status") not in (b"200", None):
            status = UNAVAILABLE
        found = status, unquote(headers.get(b"grpc-message", b"").decode())
        if len(self._blocks) < 64:
            self._blocks[block] = found
        return found


def _unpadded(flags: int, payload: bytes) -> bytes:
    if flags & _PADDED:
        payload = payload[1 : len(payload) - payload[0]]
    if flags & _PRIORITY:
        payload = payload[5:]
    return payload
