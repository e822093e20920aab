"""gRPC's wire for calls that block a thread: one request at a time on a socket of our own.

A lock is two short calls, and the runtime of gRPC spends more on each than etcd does. This is the
part of HTTP/2 that one call at a time needs. The server is asked to keep no table of headers, so
that what they mean follows from their bytes alone.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from hpack import Decoder

from holdfast.engines.etcd_address import Address
from holdfast.runtime import clock

UNKNOWN, DEADLINE_EXCEEDED, UNAVAILABLE = 2, 4, 14

_DATA, _HEADERS, _RST, _SETTINGS, _PING, _GOAWAY, _WINDOW, _CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 1, 1, 4, 8, 32
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_MOST_STREAMS = 2**30
"""Stream numbers end at 2^31; a new connection starts again."""
_ROOM = 2**30
"""What the server may send before we say that there is room again."""
_RECEIVED = 65536


class CallFailed(Exception):
    """A call was not answered, or answered with an error. `sent`: whether the server may have seen it."""

    def __init__(self, code: int, details: str, sent: bool = True) -> None:
        self.code, self.details, self.sent = code, details, sent
        super().__init__(details)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


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


@dataclass(slots=True)
class _Reply:
    """What has come so far for one call."""

    body: bytearray
    status: int | None = None
    details: str = ""
    ended: bool = False


class Connection:
    """One socket, used by one call at a time."""

    def __init__(self, address: Address, target: str, limit: float) -> None:
        host, _, port = target.rpartition(":")
        try:
            self._socket: socket.socket = socket.create_connection((host.strip("[]"), int(port)), limit)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.tls:
                self._socket = _wrapped(address, host.strip("[]"), self._socket)
        except (OSError, ssl.SSLError) as error:
            raise CallFailed(UNAVAILABLE, f"failed to connect to {target}: {error}", sent=False) from error
        scheme = b"\x87" if address.tls else b"\x86"
        self._start = b"\x83" + scheme + b"\x01" + _text((address.server_name or target).encode())
        self._end = _literal(b"te", b"trailers") + b"\x0f\x10" + _text(b"application/grpc")
        self._paths: dict[str, bytes] = {}
        self._blocks: dict[bytes, tuple[int | None, str]] = {}
        self._decoder = Decoder()
        self._stream = -1
        self._buffer = bytearray()
        self._consumed = 0
        self._window = self._room = self._first_window = 65535
        self._frame_size = 16384
        self._leaving = False
        self._partial = b""
        # No table of headers (1), no pushes (2), as much room as there is (4).
        settings = struct.pack(">HIHIHI", 1, 0, 2, 0, 4, 2**31 - 1)
        try:
            self._socket.sendall(
                _PREFACE + _frame(_SETTINGS, 0, 0, settings) + _frame(_WINDOW, 0, 0, struct.pack(">I", _ROOM))
            )
        except OSError as error:
            self.close()
            raise CallFailed(UNAVAILABLE, f"failed to connect to {target}: {error}", sent=False) from error

    def close(self) -> None:
        """Close the socket, without a word: whatever is under way is given up."""
        self._socket.close()

    @property
    def usable(self) -> bool:
        """Whether it is worth sending something: the server has not said that it goes, nor gone."""
        if self._leaving or self._stream > _MOST_STREAMS:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if not poll.poll(0):
            return True
        try:
            # What came while nobody listened: settings, pings, a farewell.
            self._socket.settimeout(0.2)
            self._receive()
            self._handle(_Reply(bytearray()))
        except (CallFailed, OSError):
            return False
        return not self._leaving

    def call(self, method: str, message: bytes, token: str, limit: float) -> bytes:
        """Send a request and wait for its answer. After any error the connection is of no use any more."""
        until = clock.now() + limit
        try:
            self._stream += 2
            self._send(method, message, token, limit, until)
            reply = _Reply(bytearray())
            self._handle(reply)
            while not reply.ended:
                self._socket.settimeout(max(0.001, until - clock.now()))
                self._receive()
                self._handle(reply)
        except TimeoutError as error:
            raise CallFailed(DEADLINE_EXCEEDED, "no answer came in time") from error
        except OSError as error:
            raise CallFailed(UNAVAILABLE, f"the connection broke: {error}") from error
        if reply.status != 0:
            raise CallFailed(UNKNOWN if reply.status is None else reply.status, reply.details)
        if self._consumed > _ROOM // 2:
            self._leaving = True  # a new one has all its room again
        return bytes(reply.body[5:])

    def _send(self, method: str, message: bytes, token: str, limit: float, until: float) -> None:
        path = self._paths.get(method)
        if path is None:
            path = self._paths[method] = self._start + b"\x04" + _text(method.encode()) + self._end
        block = path + _literal(b"grpc-timeout", b"%dm" % max(1, int(limit * 1000)))
        if token:
            block += _literal(b"token", token.encode())
        body = b"\0" + struct.pack(">I", len(message)) + message
        head = _frame(_HEADERS, _END_HEADERS, self._stream, block)
        self._socket.settimeout(limit)
        self._room = self._first_window
        if len(body) <= min(self._frame_size, self._window, self._room):
            self._window -= len(body)
            self._socket.sendall(head + _frame(_DATA, _END_STREAM, self._stream, body))
            return
        self._socket.sendall(head)
        self._send_long(body, until)

    def _send_long(self, body: bytes, until: float) -> None:
        """In pieces, each when the server says that there is room."""
        while body:
            while min(self._room, self._window) <= 0:
                self._socket.settimeout(max(0.001, until - clock.now()))
                self._receive()
                self._handle(_Reply(bytearray()))
            piece = body[: min(self._frame_size, self._window, self._room)]
            body = body[len(piece) :]
            self._window -= len(piece)
            self._room -= len(piece)
            self._socket.sendall(_frame(_DATA, 0 if body else _END_STREAM, self._stream, piece))

    def _receive(self) -> None:
        data = self._socket.recv(_RECEIVED)
        if not data:
            raise ConnectionResetError("the server closed it")
        self._buffer += data

    def _handle(self, reply: _Reply) -> None:
        """Take every whole frame that has come."""
        buffer, at = self._buffer, 0
        while len(buffer) - at >= 9:
            length = int.from_bytes(buffer[at : at + 3], "big")
            if len(buffer) - at < 9 + length:
                break
            kind, flags, stream = struct.unpack_from(">BBI", buffer, at + 3)
            payload = bytes(buffer[at + 9 : at + 9 + length])
            at += 9 + length
            self._take(kind, flags, stream & 0x7FFFFFFF, payload, reply)
        del buffer[:at]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes, reply: _Reply) -> None:
        mine = stream == self._stream
        if kind == _DATA:
            self._consumed += len(payload)
            if mine:
                reply.body += _unpadded(flags, payload)
                reply.ended = reply.ended or bool(flags & _END_STREAM)
        elif kind in (_HEADERS, _CONTINUATION):
            self._partial += _unpadded(flags, payload) if kind == _HEADERS else payload
            if flags & _END_HEADERS:
                block, self._partial = self._partial, b""
                status, details = self._meaning(block)
                if mine and status is not None:
                    # Only the last headers have it.
                    reply.status, reply.details, reply.ended = status, details, True
        elif kind == _RST and mine:
            raise CallFailed(UNAVAILABLE, "the server ended the call")
        elif kind == _SETTINGS and not flags & _ACK:
            self._settle(payload)
        elif kind == _PING and not flags & _ACK:
            self._socket.sendall(_frame(_PING, _ACK, 0, payload))
        elif kind == _GOAWAY:
            self._leaving = True
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
        self._socket.sendall(_frame(_SETTINGS, _ACK, 0, b""))

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


def _wrapped(address: Address, host: str, plain: socket.socket) -> socket.socket:
    context = ssl.create_default_context(cadata=address.ca.decode() if address.ca else None)
    context.set_alpn_protocols(["h2"])
    if address.cert_files is not None:
        context.load_cert_chain(*address.cert_files)
    return context.wrap_socket(plain, server_hostname=address.server_name or host)
