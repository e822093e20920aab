"""Connections to one member: a socket that a thread waits at, or one of an event loop."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import cast

from holdfast.engines.etcd.address import Address
from holdfast.engines.etcd.http2 import DEADLINE_EXCEEDED, UNAVAILABLE, CallFailed, Conversation
from holdfast.runtime import clock
from holdfast.runtime.asyncio import within

_RECEIVED = 65536
SILENT_FOR, ANSWERED_WITHIN = 10.0, 3.0
"""Seconds: after the first a stream's server is asked whether it is there, and has the second to answer."""
LATELY = 0.5
"""Seconds: what was used so lately is not looked at before it is used again."""


def _context(address: Address) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=address.ca.decode() if address.ca else None)
    context.set_alpn_protocols(["h2"])
    if address.cert_files is not None:
        context.load_cert_chain(*address.cert_files)
    return context


def _split(target: str) -> tuple[str, int]:
    host, _, port = target.rpartition(":")
    return host.strip("[]"), int(port)


def _no_way(target: str, error: Exception) -> CallFailed:
    return CallFailed(UNAVAILABLE, f"failed to connect to {target}: {error or type(error).__name__}", sent=False)


def _connect(address: Address, target: str, limit: float) -> socket.socket:
    host, port = _split(target)
    try:
        made: socket.socket = socket.create_connection((host, port), limit)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not address.tls:
                return made
            return _context(address).wrap_socket(made, server_hostname=address.server_name or host)
        except BaseException:
            made.close()
            raise
    except OSError as error:
        raise _no_way(target, error) from error


class Connection:
    """One socket, used by one call at a time."""

    def __init__(self, address: Address, target: str, limit: float) -> None:
        self._socket = _connect(address, target, limit)
        self._talk = Conversation(address, target)
        self._limit, self._used = 0.0, clock.now()
        self._encrypted = address.tls
        if not address.tls:
            self._socket.settimeout(None)

    def _set_limit(self, limit: float) -> None:
        """For how long a send or a receive may take: left to the system, because Python would ask it twice a call."""
        if self._encrypted:
            self._socket.settimeout(limit)
        elif limit != self._limit:
            self._limit = limit
            span = struct.pack("@ll", int(limit), int(limit % 1 * 1e6))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, span)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, span)

    def close(self) -> None:
        """Close the socket, without a word: whatever is under way is given up."""
        self._socket.close()

    @property
    def usable(self) -> bool:
        """Whether it is worth sending something: the server has not said that it goes, nor gone."""
        if self._talk.over:
            return False
        if clock.now() < self._used + LATELY:
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if not poll.poll(0):
            return True
        try:
            # What came while nobody listened: settings, pings, a farewell.
            self._set_limit(0.2)
            self._receive()
            self._talk.pay()
        except OSError:
            return False
        return not self._talk.over

    def call(self, method: str, message: bytes, token: str, limit: float) -> bytes:
        """Send a request and wait for its answer. After a broken or late one the connection is of no use any more."""
        until = clock.now() + limit
        talk = self._talk
        try:
            talk.ask(method, message, token, limit)
            self._set_limit(limit)
            self._socket.sendall(talk.take_out())
            self._receive()
            while not talk.reply.ended:
                self._set_limit(max(0.001, until - clock.now()))
                self._receive()
        except (TimeoutError, BlockingIOError) as error:
            raise CallFailed(DEADLINE_EXCEEDED, "no answer came in time") from error
        except OSError as error:
            raise CallFailed(UNAVAILABLE, f"the connection broke: {error}") from error
        self._used = clock.now()
        return talk.answer()

    def _receive(self) -> None:
        data = self._socket.recv(_RECEIVED)
        if not data:
            raise ConnectionResetError("the server closed it")
        self._talk.feed(data)
        if self._talk.out:
            self._socket.sendall(self._talk.take_out())


class Stream:
    """A call that goes on: one thread reads, any thread sends."""

    def __init__(self, address: Address, target: str, method: str, token: str) -> None:
        self._socket = _connect(address, target, ANSWERED_WITHIN)
        self._talk, self._lock = Conversation(address, target), threading.Lock()
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._talk.open(method, token)
        try:
            self._flush()
        except OSError:
            self._socket.close()
            raise

    def send(self, message: bytes) -> None:
        """Send one message. A connection that takes nothing is ended: its reader will notice."""
        with self._lock:
            self._talk.send(message)
            try:
                self._flush()
            except OSError:
                self.close()

    def _flush(self) -> None:
        if self._talk.out:
            self._socket.settimeout(ANSWERED_WITHIN)
            self._socket.sendall(self._talk.take_out())

    def receive(self) -> list[bytes]:
        """Wait for messages; CallFailed when the call is over, or the server has fallen silent."""
        try:
            if not self._comes(SILENT_FOR):
                with self._lock:
                    self._talk.ping()
                    self._flush()
                if not self._comes(ANSWERED_WITHIN):
                    raise CallFailed(DEADLINE_EXCEEDED, "the server has fallen silent")
            with self._lock:
                self._socket.settimeout(0.0)
                try:
                    data = self._socket.recv(_RECEIVED)
                except (BlockingIOError, ssl.SSLWantReadError):
                    return []
                if not data:
                    raise ConnectionResetError("the server closed it")
                self._talk.feed(data)
                self._talk.pay()
                found = self._talk.messages()
                self._flush()
        except OSError as error:
            raise CallFailed(UNAVAILABLE, f"the connection broke: {error}") from error
        if not found and self._talk.reply.ended:
            self._talk.answer()
            raise CallFailed(UNAVAILABLE, "the server ended the call")
        return found

    def _comes(self, within: float) -> bool:
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True  # decrypted already: no poll tells of it
        return bool(self._poll.poll(within * 1000))

    def close(self) -> None:
        """End it, and wake whoever reads."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def drop(self) -> None:
        """Close this process's copy of the socket without a word: it is a fork."""
        os.close(self._socket.detach())


class Arrival:
    """What a call in an event loop waits for. Whoever waits is woken at once, not in the loop's next turn."""

    __slots__ = ("came", "error", "wake")

    def __init__(self) -> None:
        self.came = False
        self.error: CallFailed | None = None
        self.wake: Callable[[], None] | None = None

    def __await__(self) -> Generator[Arrival, None, None]:
        if not self.came:
            yield self
        if self.error is not None:
            raise self.error

    def come(self, error: CallFailed | None = None) -> None:
        """It has come, or will not: what is said first counts."""
        if not self.came:
            self.came, self.error = True, error
            if self.wake is not None:
                self.wake()


class LoopConnection(asyncio.Protocol):
    """The same in an event loop."""

    def __init__(self, address: Address, target: str, loop: asyncio.AbstractEventLoop) -> None:
        self._talk, self._loop = Conversation(address, target), loop
        self._transport: asyncio.Transport | None = None
        self._answered: Arrival | None = None
        self._lost = False

    @classmethod
    async def open(cls, address: Address, target: str, loop: asyncio.AbstractEventLoop, limit: float) -> LoopConnection:
        """Connect; CallFailed if that cannot be done in time."""
        host, port = _split(target)
        name = (address.server_name or host) if address.tls else None
        made = cls(address, target, loop)
        try:
            # The files may be in the middle of being replaced.
            context = _context(address) if address.tls else None
            await within(limit, loop.create_connection(lambda: made, host, port, ssl=context, server_hostname=name))
        except (OSError, TimeoutError) as error:
            made.close()
            raise _no_way(target, error) from error
        except BaseException:
            # It may have been made in the moment in which nobody wanted it any more.
            made.close()
            raise
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio's by descent.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._talk.feed(data)
        if self._answered is None:
            self._talk.pay()
        if self._talk.out and self._transport is not None:
            self._transport.write(self._talk.take_out())
        if self._talk.reply.ended and self._answered is not None:
            self._answered.come()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._answered is not None:
            self._answered.come(CallFailed(UNAVAILABLE, f"the connection broke: {exc or 'it was closed'}"))

    @property
    def usable(self) -> bool:
        return not self._lost and not self._talk.over

    def close(self) -> None:
        """Close it, without a word: whatever is under way is given up."""
        if self._transport is not None and not self._loop.is_closed():
            self._transport.abort()

    async def call(self, method: str, message: bytes, token: str, limit: float) -> bytes:
        """Send a request and wait for its answer. After a broken or late one the connection is of no use any more."""
        assert self._transport is not None
        if self._lost:
            raise CallFailed(UNAVAILABLE, "the connection broke while nobody used it", sent=False)
        answered = self._answered = Arrival()
        self._talk.ask(method, message, token, limit)
        late = CallFailed(DEADLINE_EXCEEDED, "no answer came in time")
        timer = self._loop.call_later(limit, answered.come, late)
        try:
            self._transport.write(self._talk.take_out())
            await answered
        finally:
            timer.cancel()
            self._answered = None
        return self._talk.answer()
