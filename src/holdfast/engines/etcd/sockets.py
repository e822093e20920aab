"""Connections to one member: a socket that a thread waits at, or one of an event loop."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import ssl
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import cast

from holdfast.engines.etcd.address import Address
from holdfast.engines.etcd.http2 import DEADLINE_EXCEEDED, UNAVAILABLE, CallFailed, Conversation
from holdfast.runtime import clock
from holdfast.runtime.asyncio import AGAIN, abort, connect, within
from holdfast.runtime.calls import new_lock

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


def _connect(address: Address, target: str, until: float) -> socket.socket:
    """A socket that never blocks, connected by a moment on the clock."""
    host, port = _split(target)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for number, (family, kind, protocol, _, place) in enumerate(found, 1):
            made = socket.socket(family, kind, protocol)
            try:
                made.settimeout(_left(until))
                made.connect(place)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if address.tls:
                    made.settimeout(_left(until))
                    made = _context(address).wrap_socket(made, server_hostname=address.server_name or host)
                made.setblocking(False)
            except OSError:
                made.close()
                if number == len(found):
                    raise
            except BaseException:
                made.close()
                raise
            else:
                return made
        raise OSError("the name has no address")
    except OSError as error:
        raise _no_way(target, error) from error


def _left(until: float) -> float:
    """For how many seconds the system may still wait; TimeoutError if there are none."""
    left = until - clock.now()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


class _Readiness:
    """Waits until one socket can be read or written.

    Every wait ends at a moment on the clock. A time limit that the system counts, as SO_RCVTIMEO, begins
    anew after every signal.
    """

    def __init__(self, made: socket.socket) -> None:
        self._poll = select.poll()
        self._file = made.fileno()
        self._events = select.POLLIN
        self._poll.register(self._file, select.POLLIN)

    def wait(self, events: int, until: float) -> None:
        """TimeoutError if the socket is not ready in time."""
        if events != self._events:
            self._events = events
            self._poll.modify(self._file, events)
        if not self._poll.poll(_left(until) * 1000):
            raise TimeoutError("timed out")


class Connection:
    """One socket, used by one call at a time."""

    def __init__(self, address: Address, target: str, until: float) -> None:
        self._socket = _connect(address, target, until)
        self._ready = _Readiness(self._socket)
        self._talk = Conversation(address, target)
        self._used = clock.now()
        self._encrypted = address.tls

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
        try:
            # What came while nobody listened: settings, pings, a farewell.
            data = self._socket.recv(_RECEIVED)
            if not data:
                return False
            self._talk.feed(data)
            self._talk.pay()
            self._send(self._talk.take_out(), clock.now() + 0.2)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return not self._talk.over

    def call(self, method: str, message: bytes, token: str, until: float) -> bytes:
        """Send a request and wait for its answer. After a broken or late one the connection is of no use any more."""
        talk = self._talk
        try:
            talk.ask(method, message, token, _left(until))
            self._send(talk.take_out(), until)
            while not talk.reply.ended:
                self._receive(until)
        except TimeoutError as error:
            raise CallFailed(DEADLINE_EXCEEDED, "no answer came in time") from error
        except OSError as error:
            raise CallFailed(UNAVAILABLE, f"the connection broke: {error}") from error
        self._used = clock.now()
        return talk.answer()

    def _send(self, data: bytes, until: float) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[self._socket.send(left) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._ready.wait(select.POLLOUT, until)
            except ssl.SSLWantReadError:
                self._ready.wait(select.POLLIN, until)

    def _receive(self, until: float) -> None:
        if not self._encrypted:
            self._ready.wait(select.POLLIN, until)
        while True:
            try:
                data = self._socket.recv(_RECEIVED)
                break
            except (BlockingIOError, ssl.SSLWantReadError):
                self._ready.wait(select.POLLIN, until)
            except ssl.SSLWantWriteError:
                self._ready.wait(select.POLLOUT, until)
        if not data:
            raise ConnectionResetError("the server closed it")
        self._talk.feed(data)
        if self._talk.out:
            self._send(self._talk.take_out(), until)


class Stream:
    """A call that goes on. One thread reads it and closes its socket; any thread sends or ends it, without waiting.

    A socket that another thread closes is a number that the next socket may get: the reader would read there.
    """

    def __init__(self, address: Address, target: str, method: str, token: str) -> None:
        self._socket = _connect(address, target, clock.now() + ANSWERED_WITHIN)
        self._bell, self._rope = socket.socketpair()
        """What is sent into the second wakes the reader, which waits for the first as well."""
        for end in (self._bell, self._rope):
            end.setblocking(False)
        self._talk, self._lock = Conversation(address, target), new_lock()
        self._unsent = b""
        self._ended = self._closed = False
        self._poll = select.poll()
        self._poll.register(self._bell, select.POLLIN)
        try:
            self._talk.open(method, token)
            self._flush()
        except BaseException:
            self.close()
            raise

    def send(self, message: bytes) -> None:
        """Send one message, or leave it to the reader if the connection takes no more now."""
        with self._lock:
            if self._ended or self._closed:
                return
            try:
                self._talk.send(message)
                self._flush()
            except OSError:
                self._end()
            except BaseException:
                # An interrupt. Part of a message may be lost, so nothing more can be sent here.
                self._end()
                raise
            if self._unsent:
                self._wake()

    def end(self) -> None:
        """Give it up, in any thread: the reader closes it."""
        with self._lock:
            if not self._closed:
                self._end()

    def _end(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # it is full of such bytes already
            self._rope.send(b"!")

    def _flush(self) -> None:
        """Send what the connection takes now."""
        self._unsent += self._talk.take_out()
        while self._unsent:
            try:
                sent = self._socket.send(self._unsent)
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return
            self._unsent = self._unsent[sent:]

    def receive(self) -> list[bytes]:
        """Wait for messages; CallFailed when the call is over, or the server has fallen silent. In one thread only."""
        # What came with the last messages may have ended it.
        self._check_going_on()
        try:
            if not self._comes(clock.now() + SILENT_FOR):
                with self._lock:
                    self._talk.ping()
                    self._flush()
                if not self._comes(clock.now() + ANSWERED_WITHIN):
                    raise CallFailed(DEADLINE_EXCEEDED, "the server has fallen silent")
            with self._lock:
                found = self._take()
        except OSError as error:
            raise CallFailed(UNAVAILABLE, f"the connection broke: {error}") from error
        if not found:
            self._check_going_on()
        return found

    def _check_going_on(self) -> None:
        """Raise CallFailed if the server has ended the call, or will."""
        if self._talk.reply.ended:
            self._talk.answer()
        if self._talk.reply.ended or self._talk.over:
            raise CallFailed(UNAVAILABLE, "the server ended the call")

    def _take(self) -> list[bytes]:
        try:
            data = self._socket.recv(_RECEIVED)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._flush()
            return []
        if not data:
            raise ConnectionResetError("the server closed it")
        self._talk.feed(data)
        self._talk.pay()
        found = self._talk.messages()
        self._flush()
        return found

    def _comes(self, until: float) -> bool:
        """Whether something came in time, or what was left unsent can be sent now."""
        while True:
            if self._ended:
                raise CallFailed(UNAVAILABLE, "the stream was given up")
            if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
                return True  # decrypted already: no poll tells of it
            self._poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))
            ready = self._poll.poll(max(0.0, until - clock.now()) * 1000)
            if any(file != self._bell.fileno() for file, _ in ready):
                return True
            if not ready:
                return False
            with suppress(BlockingIOError):
                self._bell.recv(_RECEIVED)

    def close(self) -> None:
        """Close the socket: in the thread that reads, or where no thread does."""
        with self._lock:
            self._closed = True
            for each in (self._socket, self._bell, self._rope):
                each.close()

    def drop(self) -> None:
        """Close this process's copies of the sockets without a word: it is a fork."""
        for each in (self._socket, self._bell, self._rope):
            os.close(each.detach())


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
            self.wake = None
        if self.error is not None:
            raise self.error

    def come(self, error: CallFailed | None = None) -> None:
        """It has come, or will not: what is said first counts. Said again, it wakes a call that was not woken.

        A signal handler may raise after the first time, before the call goes on.
        """
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
        made = cls(address, target, loop)
        try:
            # The files may be in the middle of being replaced.
            context = _context(address) if address.tls else None
            await within(limit, connect(loop, lambda: made, (host, port), context, address.server_name))
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
        if self._lost:
            self.close()

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
        """Close it, without a word: whatever is under way is given up. One that is still to be made is closed then."""
        self._lost = True
        if self._transport is not None and not self._loop.is_closed():
            abort(self._loop, self._transport)

    async def call(self, method: str, message: bytes, token: str, limit: float) -> bytes:
        """Send a request and wait for its answer. After a broken or late one the connection is of no use any more."""
        assert self._transport is not None
        if self._lost:
            raise CallFailed(UNAVAILABLE, "the connection broke while nobody used it", sent=False)
        answered = self._answered = Arrival()
        self._talk.ask(method, message, token, limit)
        late = CallFailed(DEADLINE_EXCEEDED, "no answer came in time")
        # Two: a signal handler may raise in the first one before it has woken the call.
        timers = [self._loop.call_later(limit + more, answered.come, late) for more in (0.0, AGAIN)]
        try:
            self._transport.write(self._talk.take_out())
            await answered
        finally:
            for timer in timers:
                timer.cancel()
            self._answered = None
        return self._talk.answer()
