"""The wire for blocking callers: bare sockets, hiredis to parse, and a small pool that threads take turns on."""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
import time
from typing import TYPE_CHECKING, Any

from hiredis import ProtocolError, Reader, ReplyError

from holdfast.engines.resp.wire import WRONG_SERVER, Address, AnyRequest, Login, Lost, redirection, refused
from holdfast.errors import EngineFailure
from holdfast.runtime import clock
from holdfast.runtime.call_pool import CallPool, PoolItem

if TYPE_CHECKING:
    from holdfast.engines.redis.route import Route

IDLE = 0.01
"""After how many idle seconds a connection is looked at before it is used: the server may have closed it."""
TICK_US = 20_000
"""How often, in µs, whoever waits for a reply looks at the clock."""
TICK = TICK_US / 1e6
AT_ONCE = 4096
"""How many bytes of a reply are read at first: nearly all are shorter, and room for more takes time to make."""
LOOKS = 60
"""How often a thread that waits alone looks for a reply before it sleeps, about 100 µs in all.

A server nearby answers sooner than a sleeping thread is woken on another core.
"""
IN_VAIN = 32
"""How many requests sleep at once after one that has looked in vain: the server is busy, or far away."""
MOVING = 0.02
"""How often, in seconds, a node of a cluster is asked whether the namespace has moved as a whole."""
IN_TIME = 0.1
"""Seconds that a request must have left to be sent once more: if no answer came, nobody could say what became of it."""
MOST_REDIRECTIONS = 5
MOST_REPEATS = 3


def left(until: float) -> float:
    """The seconds until then; Lost if there are none."""
    seconds = until - clock.now()
    if seconds <= 0:
        raise Lost("no answer in time", silent=True)
    return seconds


class Connection:
    """One connection to one server. One thread uses it at a time."""

    def __init__(self, address: Address, login: Login, tls: ssl.SSLContext | None, until: float) -> None:
        self.open(address, login, tls, until)

    def open(self, address: Address, login: Login, tls: ssl.SSLContext | None, until: float) -> None:
        """Connect and log in; Lost if that does not work, and then nothing is open."""
        self.address = address
        self.used = clock.now()
        self._sleeps = 0
        """How many more requests do not look for their reply before they sleep."""
        try:
            self.socket: socket.socket = socket.create_connection(address, left(until))
        except OSError as error:
            raise Lost(f"cannot connect to {address}: {error}", sent=False) from error
        self.reader = Reader()
        self._tls = tls is not None
        self.plain = not self._tls
        """Whether it is not encrypted."""
        try:
            # What the address was resolved to. This fails if the server has hung up already.
            self.peer: tuple[str, int] = self.socket.getpeername()[:2]
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self.socket = tls.wrap_socket(self.socket, server_hostname=address.host)
            else:
                # Python's own way to bound a call costs three more system calls each time.
                self.socket.settimeout(None)
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, TICK_US))
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 1, 0))
            # Not select(): it cannot watch file number 1024 and beyond.
            self._poll = select.poll()
            self._poll.register(self.socket, select.POLLIN)
            commands = login.commands()
            if commands:
                self.send(login.packed(), until)
                login.check([self.receive(until) for _ in commands])
        except Lost as lost:
            self.close()
            raise lost.at_login(str(address)) from lost
        except OSError as error:
            self.close()
            raise Lost(f"{address}: {error}", sent=False) from error

    def _bound(self, until: float) -> None:
        """Let the next call on the socket end by then. A plain socket does so by itself, every TICK."""
        seconds = left(until)
        if self._tls:
            self.socket.settimeout(seconds)

    def send(self, packed: bytes, until: float) -> None:
        """Write all of it; Lost if that cannot be done in time."""
        self._bound(until)
        self.write(packed)

    def write(self, packed: bytes) -> None:
        """Write all of it, by the time that the socket is bound to; Lost if that cannot be done."""
        try:
            self.socket.sendall(packed)
        except (TimeoutError, BlockingIOError) as error:
            raise Lost("no answer in time", silent=True) from error
        except OSError as error:
            raise Lost(str(error)) from error

    def receive(self, until: float) -> Any:
        """The next reply, an error reply as a value."""
        gets, sock = self.reader.gets, self.socket
        try:
            while True:
                reply = gets()
                if reply is not False:
                    return reply
                self._bound(until)
                try:
                    received = sock.recv(65536)
                except BlockingIOError:
                    continue
                if not received:
                    raise Lost("the server closed the connection")
                self.reader.feed(received)
        except TimeoutError as error:
            raise Lost("no answer in time", silent=True) from error
        except (OSError, ProtocolError) as error:
            raise Lost(str(error)) from error

    def _look(self) -> bytes | None:
        """What has come by now, looked for again and again for a while; None if nothing has."""
        if self._sleeps:
            self._sleeps -= 1
            return None
        recv = self.socket.recv
        for _ in range(LOOKS):
            try:
                return recv(AT_ONCE, socket.MSG_DONTWAIT)
            except BlockingIOError:
                # The server may have to run on this very core.
                os.sched_yield()
        self._sleeps = IN_VAIN
        return None

    def receive_soon(self, alone: bool = False) -> Any:
        """The next reply if it comes within a tick, else False. For a plain connection.

        `alone` if no other thread of this client waits for a reply: looking would cost it time.
        """
        try:
            received = self._look() if alone else None
            if received is None:
                received = self.socket.recv(AT_ONCE)
            if not received:
                raise Lost("the server closed the connection")
            self.reader.feed(received)
            return self.reader.gets()
        except BlockingIOError:
            return False
        except (OSError, ProtocolError) as error:
            raise Lost(str(error)) from error

    def run(self, packed: bytes, until: float, alone: bool = False) -> Any:
        """Send one command and return its reply."""
        self.send(packed, until)
        # A plain connection looks at the clock when a tick is over, not before: most replies come sooner.
        reply = False if self._tls else self.receive_soon(alone)
        if reply is False:
            reply = self.receive(until)
        self.used = clock.now()
        return reply

    def received(self) -> Any:
        """The next reply if all of it was read together with the one before, else False."""
        try:
            return self.reader.gets()
        except ProtocolError as error:
            raise Lost(str(error)) from error

    def readable(self, seconds: float = 0.0) -> bool:
        """Whether there is something to read, or comes within so many seconds: a reply, or the connection's end."""
        return bool(self._poll.poll(seconds * 1000))

    def closed_by_server(self) -> bool:
        """Whether the server has closed it, or said something that nobody asked for."""
        return self.readable()

    def close(self) -> None:
        self.socket.close()


class Pool:
    """A few connections, each borrowed by one call at a time. A thousand threads that wait for locks share them."""

    def __init__(self, route: Route, most: int) -> None:
        self.route = route
        self.items: CallPool[Connection] = CallPool(most, Connection.close)
        self._closed = False

    def take(self, until: float) -> PoolItem[Connection]:
        """Borrow a connection that seems to work; Lost if there is none in time, and then nothing was sent."""
        item = self.items.take(until)
        if item is None:
            raise Lost("every connection is busy", sent=False)
        try:
            connection = item.value
            if connection is not None and clock.now() - connection.used >= IDLE and connection.closed_by_server():
                item.value = None
                connection.close()
            if item.value is None:
                item.value = self._connect(until)
        except BaseException:
            self.items.give(item)
            raise
        return item

    def _connect(self, until: float) -> Connection:
        try:
            return connect(self.route, until)
        except Lost as lost:
            raise Lost(lost.problem, sent=False, cut=lost.cut) from lost

    def give(self, item: PoolItem[Connection]) -> None:
        """Take a connection back that works."""
        if self._closed:
            self.drop(item)
        else:
            self.items.give(item)

    def drop(self, item: PoolItem[Connection]) -> None:
        """Take a connection back that must not be used again."""
        connection, item.value = item.value, None
        if connection is not None:
            connection.close()
        self.items.give(item)

    def empty(self) -> None:
        """Close what is idle: the server is another one now, or the client is closed."""
        for connection in self.items.idle_values():
            connection.close()

    def close(self) -> None:
        self._closed = True
        self.empty()


def connect(route: Route, until: float) -> Connection:
    """A connection to where the route leads: to the first address that works, as long as it names new ones."""
    tried: dict[Address, Lost] = {}
    while True:
        address = route.locate(until)
        if address in tried:
            raise tried[address]
        try:
            return Connection(address, route.login, route.tls, until)
        except Lost as lost:
            route.failed(address)
            tried[address] = lost


class RespPort:
    """Carries requests to the server that has the namespace, wherever that is."""

    def __init__(self, name: str, route: Route, most: int = 8) -> None:
        self.name, self.route, self.most = name, route, most
        self.pool = Pool(route, most)

    def call(self, request: AnyRequest, until: float) -> Any:
        """The reply; EngineUnavailable says whether the request may have been carried out."""
        repeated = False
        redirections = 0
        for attempt in range(MOST_REPEATS):
            try:
                item = self.pool.take(until)
            except Lost as lost:
                if lost.cut and attempt < MOST_REPEATS - 1:
                    continue
                raise EngineFailure(self.name, lost.problem, "unknown" if repeated else "not done") from lost
            try:
                connection = item.value
                assert connection is not None
                reply = connection.run(request.packed(repeated), until, self.pool.items.is_lone(item))
                while isinstance(reply, ReplyError):
                    redirections += 1
                    reply = self._after_error(request, reply, connection, repeated, redirections, until)
            except Lost as lost:
                self.pool.drop(item)
                if not request.repeats or lost.silent or attempt == MOST_REPEATS - 1:
                    raise EngineFailure(self.name, lost.problem, "unknown") from lost
                # The claim id makes a repeat safe: it finds what the first try has done.
                repeated = request.sent_twice = True
                continue
            except BaseException:
                self.pool.drop(item)
                raise
            self.pool.give(item)
            return reply
        raise AssertionError("unreachable")

    def _after_error(
        self, request: AnyRequest, error: ReplyError, connection: Connection, repeated: bool, tried: int, until: float
    ) -> Any:
        """Try again what an error reply allows to try again; nothing was done."""
        where = redirection(error, connection.address)
        if tried > MOST_REDIRECTIONS:
            raise refused(self.name, error, repeated)
        if str(error).startswith("NOSCRIPT"):
            return connection.run(request.packed_in_full(repeated), until)
        if where is not None:
            asked, address = where
            if asked == "ASK":
                return self._wait_for_move(request, error, connection, repeated, until)
            self.route.moved(address)
            self.pool.empty()
            connection.close()
            connection.open(address, self.route.login, self.route.tls, until)
            return connection.run(request.packed_in_full(repeated), until)
        if str(error).startswith(WRONG_SERVER):
            self.route.failed(connection.address)
            self.pool.empty()
        raise refused(self.name, error, repeated)

    def _wait_for_move(
        self, request: AnyRequest, error: ReplyError, connection: Connection, repeated: bool, until: float
    ) -> Any:
        """Ask again until the namespace has moved to the other node as a whole.

        A part of its keys is there already, but no script may run that does not see all of them.
        """
        reply: Any = error
        while isinstance(reply, ReplyError) and str(reply).startswith("ASK "):
            time.sleep(MOVING)
            if clock.now() + IN_TIME >= until:
                raise refused(self.name, reply, repeated)
            reply = connection.run(request.packed(repeated), until)
        return reply

    def close(self) -> None:
        self.pool.close()

    def abandon(self) -> None:
        """This process is a fork: the sockets are the parent's. Closing them here says nothing on the wire."""
        former, self.pool = self.pool, Pool(self.route, self.most)
        former.empty()
