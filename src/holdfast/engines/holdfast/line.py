"""One connection that many threads use at once: whoever waits for a reply reads for all of them."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from hiredis import ProtocolError, PushNotification, Reader

from holdfast.engines.holdfast.route import Route
from holdfast.engines.resp.blocking import TICK_US, left
from holdfast.engines.resp.wire import Address, Lost
from holdfast.runtime import clock
from holdfast.runtime.blocking import ThreadSignal
from holdfast.runtime.call_pool import LOOK, CallTurn
from holdfast.runtime.calls import new_lock

Hear = Callable[[list[Any]], None]
"""Takes a push."""


PENDING = object()


class UnderWay(Exception):
    """A signal handler asks while its own thread writes to the connection or reads from it. Nothing was sent."""


class Waiter:
    """A request under way."""

    __slots__ = ("dropped", "gate", "reply", "sent")

    def __init__(self) -> None:
        self.reply: Any = PENDING
        """Lost if there will be none."""
        self.sent = clock.now()
        self.gate: ThreadSignal | None = None
        """Set when there is something to do: the reply is here, or somebody else has to read."""
        self.dropped = False
        """Whether nobody waits for the reply any more."""


class Line:
    """A connection to the server, logged in."""

    def __init__(self, address: Address, route: Route, hear: Hear, until: float) -> None:
        self.address, self._hear = address, hear
        self.problem: str | None = None
        """Why it is not usable any more."""
        self.session: str | None = None
        """For whom it speaks."""
        self._reader = Reader()
        # Reentrant, so that a signal handler finds out that its own thread is writing, instead of waiting for it.
        self._sending, self._writes = new_lock(), False
        self._reading = CallTurn()
        self._tls_turn = new_lock()
        """One step at a time: reading and writing at once is not for TLS."""
        self._waiting: deque[Waiter] = deque()
        self._leaving: str | None = None
        """Why it ends with the last reply."""
        self._heard = clock.now()
        self.socket = self._connect(address, route.tls, until)
        self._tls = route.tls is not None
        try:
            route.check(address, [self.call(greeting, until) for greeting in route.greetings()])
        except BaseException:
            self.end("it could not be opened")
            raise

    def _connect(self, address: Address, tls: ssl.SSLContext | None, until: float) -> socket.socket:
        try:
            found = socket.create_connection(address, left(until))
        except OSError as error:
            raise Lost(f"cannot connect to {address}: {error}", sent=False) from error
        try:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                found = tls.wrap_socket(found, server_hostname=address.host)
                # Reading and writing at once is not for TLS: it is asked only when something is there.
                found.setblocking(False)
            else:
                found.settimeout(None)
                found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, TICK_US))
                found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 1, 0))
        except OSError as error:
            found.close()
            raise Lost(f"{address}: {error}", sent=False) from error
        return found

    def leave(self, problem: str) -> None:
        """End it, as soon as those who have asked have their replies."""
        self._leaving = problem
        if not any(waiter.reply is PENDING for waiter in tuple(self._waiting)):
            self.end(problem)

    def call(self, packed: bytes, until: float) -> Any:
        """Send a command and return its reply, an error reply as a value; Lost if there is none in time."""
        waiter = Waiter()
        try:
            with self._sending:
                if self._writes or self._reading.is_taken_here():
                    # Only a signal handler gets here. What its thread is doing cannot go on before it has returned.
                    raise UnderWay
                self._writes = True
                try:
                    if self.problem is not None:
                        raise Lost(self.problem, sent=False)
                    self._send(waiter, packed, until)
                finally:
                    self._writes = False
        finally:
            if self.problem is not None:
                self._close()
        try:
            self._await(waiter, until)
        except BaseException:
            # Also an interrupt: bytes may have been taken that nobody has parsed.
            waiter.dropped = True
            raise
        finally:
            self._pass_on()
        if isinstance(waiter.reply, Lost):
            raise waiter.reply
        return waiter.reply

    def _send(self, waiter: Waiter, packed: bytes, until: float) -> None:
        """Write all of it. What was written in part, or waits without having been sent, ends the connection."""
        try:
            self._waiting.append(waiter)
            if self._tls:
                self._send_tls(packed, until)
            else:
                self.socket.sendall(packed)
        except BaseException as error:
            self.end(str(error) or type(error).__name__)
            if isinstance(error, OSError):
                raise Lost(str(error)) from error
            raise

    def _send_tls(self, packed: bytes, until: float) -> None:
        rest = memoryview(packed)
        while rest:
            try:
                with self._tls_turn:
                    sent = self.socket.send(rest)
                rest = rest[sent:]
            except ssl.SSLWantWriteError:
                self._poll(select.POLLOUT, until)
            except ssl.SSLWantReadError:
                self._poll(select.POLLIN, until)

    def _poll(self, events: int, until: float) -> bool:
        poll = select.poll()
        poll.register(self.socket, events)
        return bool(poll.poll(min(left(until) * 1000, TICK_US / 1000)))

    def _await(self, waiter: Waiter, until: float) -> None:
        """Until the reply is here: read, or wait for whoever reads."""
        while waiter.reply is PENDING:
            if self._reading.take(waiter):
                try:
                    while waiter.reply is PENDING:
                        if clock.now() >= until:
                            self._give_up(waiter)
                        self._receive(until)
                finally:
                    self._let_go()
            elif waiter.gate is None:
                # Once more before waiting: whoever reads may have stopped before it could see the gate.
                waiter.gate = ThreadSignal()
            else:
                if self.problem is not None:
                    raise Lost(self.problem)
                left_over = until - clock.now()
                if left_over <= 0:
                    self._give_up(waiter)
                # A reader whose call an interrupt has ended wakes no other one.
                waiter.gate.wait(min(left_over, LOOK))
                waiter.gate.clear()

    def _give_up(self, waiter: Waiter) -> None:
        """The time is over; for the connection too, if it has said nothing all that time."""
        if self._heard < waiter.sent:
            self.end("no answer in time")
        if waiter.reply is PENDING or isinstance(waiter.reply, Lost):
            raise Lost("no answer in time", silent=True)

    def _receive(self, until: float) -> None:
        """Take what has arrived, or what arrives within a tick."""
        if self.problem is not None:
            raise Lost(self.problem)
        try:
            if self._tls:
                self._receive_tls(until)
                return
            self._take(self.socket.recv(65536))
        except BlockingIOError:
            return
        except Lost:
            raise
        except BaseException as error:
            self.end(str(error) or type(error).__name__)
            if isinstance(error, OSError):
                raise Lost(str(error)) from error
            raise

    def _receive_tls(self, until: float) -> None:
        assert isinstance(self.socket, ssl.SSLSocket)
        if not self.socket.pending() and not self._poll(select.POLLIN, until):
            return
        try:
            with self._tls_turn:
                received = self.socket.recv(65536)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        self._take(received)

    def _take(self, received: bytes) -> None:
        """Parse what has come: replies in the order of the requests, pushes in between."""
        if not received:
            self.end("the server closed the connection")
            return
        self._heard = clock.now()
        self._reader.feed(received)
        try:
            reply = self._reader.gets()
            while reply is not False:
                if isinstance(reply, PushNotification):
                    self._hear(reply)
                else:
                    # Answered before it goes: an interrupt in between must not leave it with nobody to tell it.
                    self._answer(self._waiting[0], reply)
                    self._waiting.popleft()
                reply = self._reader.gets()
        except (ProtocolError, IndexError) as error:
            self.end(f"the server sent something else than replies: {error}")
        if self._leaving is not None and not self._waiting:
            self.end(self._leaving)

    def _answer(self, waiter: Waiter, reply: Any) -> None:
        if waiter.reply is PENDING:
            waiter.reply = reply
        if waiter.gate is not None:
            waiter.gate.set()

    def _let_go(self) -> None:
        """Read no more; a connection that has ended is closed by its last reader."""
        self._reading.give()
        if self.problem is not None:
            self._close()

    def _pass_on(self) -> None:
        """Somebody else has to read from here on."""
        if not self._waiting or self._reading.is_taken():
            return
        for waiter in tuple(self._waiting):
            if not waiter.dropped and waiter.gate is not None:
                waiter.gate.set()
                return

    def look(self) -> None:
        """Take what has come unasked: also that the server has closed the connection meanwhile."""
        if not self._reading.take(object()):
            return  # the call that reads hears of it
        try:
            if self.problem is None and self._has_something():
                with contextlib.suppress(Lost):
                    self._receive(clock.now())
        finally:
            self._let_go()
            self._pass_on()

    def _has_something(self) -> bool:
        if self._tls and self.socket.pending():  # type: ignore[attr-defined]
            return True
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(0))

    def listen(self, other: int, seconds: float | None) -> bool:
        """Wait for something on this connection or on another file; whether it was the other one."""
        poll = select.poll()
        poll.register(other, select.POLLIN)
        if not self._reading.take(object()):
            # Another call reads, and hands pushes on.
            return bool(poll.poll(50.0 if seconds is None else min(50.0, seconds * 1000)))
        try:
            if self.problem is not None:
                return False
            poll.register(self.socket, select.POLLIN)
            pending = self._tls and self.socket.pending()  # type: ignore[attr-defined]
            ready = dict(poll.poll(0 if pending else None if seconds is None else seconds * 1000))
            if pending or self.socket.fileno() in ready:
                with contextlib.suppress(Lost):
                    self._receive(clock.now() + 1.0)
            return other in ready
        finally:
            self._let_go()
            self._pass_on()

    def end(self, problem: str) -> None:
        """Close at once: whoever waits for a reply is told."""
        if self.problem is not None:
            return
        self.problem = problem
        # Only the reader takes them out: it may be in the middle of the replies, and they have an order.
        for waiter in tuple(self._waiting):
            self._answer(waiter, Lost(problem))
        with contextlib.suppress(OSError):
            # Wakes whoever reads; closing the file under it could hand it another's.
            self.socket.shutdown(socket.SHUT_RDWR)
        self._close()

    def _close(self) -> None:
        """Close the file, unless a call reads or writes it now: that call closes it afterwards.

        A call that begins later sees the problem, and does not touch the file.
        """
        if not self._reading.is_taken():
            if not self._writes:
                self.socket.close()
            self._pass_on()

    def abandon(self) -> None:
        """This process is a fork: closing the file here says nothing on the wire."""
        self.socket.close()
