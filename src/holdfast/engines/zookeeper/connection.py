"""kazoo's connection, taught to send and read many at once, and to leave the session to us.

kazoo asks the system whether it may write before every request, and whether it may read twice before every
reply. Here what waits is sent together, and what has come is read together.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import AUTH_XID, ConnectionHandler
from kazoo.protocol.serialization import Auth, Connect, Create2, Transaction, Watch, int_struct, write_string
from kazoo.protocol.states import KeeperState
from kazoo.security import OPEN_ACL_UNSAFE

from holdfast.engines.zookeeper.address import ZooKeeperAddress
from holdfast.engines.zookeeper.answer import Answer
from holdfast.runtime import clock
from holdfast.runtime.blocking import ThreadSignal

if TYPE_CHECKING:
    from holdfast.engines.zookeeper.link import Link

A_READ = 65536
MOST_UNANSWERED = 500
"""How many requests are under way at once: a heartbeat must not wait until a server has answered thousands."""
ENDED = (KeeperState.AUTH_FAILED, KeeperState.CLOSED, KeeperState.EXPIRED_SESSION)
EPHEMERAL, SEQUENTIAL = 1, 2
MOST_XID = 2**31 - 1
_HEAD = struct.Struct("!ii")
"""Of a request: the length of what follows, and its number."""
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class AddWatch(NamedTuple):
    """The request of ZooKeeper 3.6 for a watch that stays; mode 1: on everything under the path too."""

    path: str
    mode: int

    @property
    def type(self) -> int:
        return 106

    def serialize(self) -> bytes:
        data: bytes = write_string(self.path) + int_struct.pack(self.mode)
        return data

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> bool:
        return True


class Message:
    """A request as it is sent, but for its number: made by whoever asks, not in the thread that all wait for."""

    __slots__ = ("body", "first", "request")

    def __init__(self, request: Any, *, first: bool = False) -> None:
        self.request, self.first = request, first
        self.body = int_struct.pack(request.type) + request.serialize()


class Call:
    """A function that is called in the connection's thread when a message in its place would be sent."""

    __slots__ = ("function",)
    first = False

    def __init__(self, function: Callable[[Answer], object]) -> None:
        self.function = function


class DirectHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Calls back in the connection's own thread: what we do there only sets signals."""

    def __init__(self, address: ZooKeeperAddress, longest_dial: float) -> None:
        super().__init__()
        self.address, self.longest_dial = address, longest_dial
        self.ended: Callable[[], None] = lambda: None

    def start(self) -> None:
        """No workers."""

    def stop(self) -> None:
        """No workers."""

    def event_object(self) -> ThreadSignal:
        # kazoo's flags are set and cleared by callers too. An interrupt inside a threading.Event can leave its lock
        # held, for which the connection's thread would wait for ever.
        return ThreadSignal()

    def async_result(self) -> Answer:
        return Answer()

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def create_connection(self, address: tuple[str, int], hostname: str, timeout: float, **_: Any) -> socket.socket:
        # kazoo's own forgets to close a connection whose TLS failed.
        plain = socket.create_connection(address, min(timeout, self.longest_dial))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.address.wrap(plain, hostname) if self.address.tls else plain

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        # A bell that is full has rung. kazoo's own would block the thread that empties it.
        pair = socket.socketpair()
        for end in pair:
            end.setblocking(False)
        return pair

    def select(self, readers: Sequence[Any], writers: Sequence[Any], _: Any, timeout: float | None = None) -> Any:
        # What TLS has decrypted already makes no file number readable.
        decrypted = [reader for reader in readers if hasattr(reader, "pending") and reader.pending()]
        if decrypted:
            return decrypted, [], []
        poll = select.poll()
        for reader in readers:
            poll.register(reader, select.POLLIN)
        for writer in writers:
            poll.register(writer, select.POLLOUT)
        ready = {number for number, _ in poll.poll(None if timeout is None else max(0.0, timeout) * 1000)}
        return (
            [reader for reader in readers if reader.fileno() in ready],
            [writer for writer in writers if writer.fileno() in ready],
            [],
        )

    def spawn(self, function: Callable[..., Any], *args: Any, **options: Any) -> threading.Thread:
        def run() -> None:
            try:
                function(*args, **options)
            finally:
                self.ended()

        thread = threading.Thread(target=run, name="holdfast-zookeeper", daemon=True)
        thread.start()
        return thread


class Kazoo(KazooClient):  # type: ignore[misc]
    """kazoo's client, which rings once for all that wait to be sent."""

    def _call(self, request: Any, result: Any) -> Any:
        if self._state in ENDED:
            return super()._call(request, result)
        self.send(request if isinstance(request, Call) else Message(request), result)
        return None

    def create_in_order(self, path: str, data: bytes) -> Answer:
        """Create an ephemeral node with a sequence number: its path and stat. In a third of the time of kazoo's own."""
        answer = Answer()
        self._call(Create2(path, data, self.default_acl or OPEN_ACL_UNSAFE, EPHEMERAL | SEQUENTIAL), answer)
        return answer

    def commit_first(self, transaction: Any) -> Answer:
        """Commit a transaction before all that waits to be sent: the heartbeat, which nothing may delay."""
        answer = Answer()
        request = Transaction(transaction.operations)
        if self._state in ENDED:
            super()._call(request, answer)
        else:
            self.send(Message(request, first=True), answer)
        return answer

    def call_in_turn(self, function: Callable[[Answer], object], answer: Answer) -> None:
        """Call this with the answer, in the connection's thread, when all that was sent before is on its way.

        Without a connection, the answer fails as that of a request does, and the function is not called.
        """
        self._call(Call(function), answer)

    def send(self, message: Message | Call, answer: Answer | None) -> None:
        """Send a message when it is its turn. One that is sent while there is no connection waits for the next."""
        if message.first:
            self._queue.appendleft((message, answer))
        else:
            self._queue.append((message, answer))
        if self._connection._write_sock is not None:
            self._connection.wake()
        elif answer is not None:
            answer.set_exception(ConnectionClosedError("Connection has been closed"))


class Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, which tells what was negotiated, and does not ping where heartbeats are sent."""

    _xid: int

    def __init__(self, link: Link, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.link = link
        self._buffer = b""
        """What was read and not yet taken."""
        self._reading = False
        """Whether all that waits to be sent is about to be sent, without a bell."""
        self._rung = False
        """Whether the bell was rung and not yet emptied: to ring it again would only cost time."""

    def _connect(self, *args: Any) -> Any:
        self._buffer = b""
        try:
            made = super()._connect(*args)
        except Exception as error:
            self.link.problem = f": {error}"
            raise
        if self.link.over is not None:
            # It was closed in the meantime, when there was no connection yet to hang up; nobody would ever end it.
            raise ConnectionDropped("it was closed")
        return made

    # Reading and writing

    def _read(self, length: int, timeout: float) -> bytes:
        if len(self._buffer) < length:
            with self._socket_error_handling():
                self._fill(length, timeout)
        found, self._buffer = self._buffer[:length], self._buffer[length:]
        return found

    def _fill(self, length: int, timeout: float) -> None:
        while len(self._buffer) < length:
            try:
                part = self._socket.recv(A_READ)
            except _NOT_NOW:
                if not self.handler.select([self._socket], [], [], timeout)[0]:
                    raise self.handler.timeout_exception("socket time-out during read") from None
                continue
            if not part:
                raise ConnectionDropped("socket connection broken")
            self._buffer += part

    def _whole_reply(self) -> bool:
        """Whether a reply has come that nobody has looked at: the socket does not tell."""
        if len(self._buffer) < int_struct.size:
            return False
        (length,) = int_struct.unpack_from(self._buffer)
        whole: int = int_struct.size + length
        return len(self._buffer) >= whole

    def _read_socket(self, timeout: float) -> Any:
        self._reading = True
        try:
            response = super()._read_socket(timeout)
            while response is None and self._whole_reply():
                response = super()._read_socket(timeout)
        finally:
            # First this, then the look at what waits: whoever asks too late for that look rings.
            self._reading = False
        # What was asked for in answer to that does not wait for another turn.
        self._send_all(timeout)
        return response

    def _write(self, message: bytes, timeout: float) -> None:
        with self._socket_error_handling():
            try:
                sent = self._socket.send(message)
            except _NOT_NOW:
                sent = 0
        if sent < len(message):
            super()._write(message[sent:], timeout)

    def wake(self) -> None:
        """Have the connection's thread look at what is to be sent; never waits, also not in that thread itself."""
        bell = self._write_sock
        if bell is not None and not self._reading and not self._rung:
            # An interrupt inside leaves the flag down: otherwise nobody would ever ring again.
            self._rung = True
            try:
                bell.send(b"!")
            except BlockingIOError:
                return  # a bell that is full has rung
            except OSError:
                self._rung = False
            except BaseException:
                self._rung = False
                raise

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        self._send_all(connect_timeout)
        with suppress(BlockingIOError):
            self._read_sock.recv(A_READ)
        self._rung = False
        # Whoever has rung before the bell was emptied.
        self._send_all(connect_timeout)

    def _send_all(self, timeout: float) -> None:
        """Send all that waits, as one message."""
        queue, pending = self.client._queue, self.client._pending
        parts: list[bytes] = []
        while queue and (len(pending) < MOST_UNANSWERED or queue[0][0].first):
            message, answer = queue.popleft()
            if isinstance(message, Call):
                message.function(answer)
                continue
            request, body = message.request, message.body
            if request.type == Auth.type:
                xid = AUTH_XID
            else:
                xid = self._xid = (self._xid % MOST_XID) + 1
            self.link.counted()
            parts += (_HEAD.pack(int_struct.size + len(body), xid), body)
            pending.append((request, answer, xid))
        if parts:
            self._write(b"".join(parts), timeout)

    # The session

    def _invoke(self, timeout: float, request: Any, xid: Any = None) -> Any:
        if isinstance(request, Connect):
            # One that accepts and stands still must not cost the session: there are others.
            timeout = min(timeout, self.handler.longest_dial)
        sent = clock.now()
        reply = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect) and reply[0].time_out > 0:
            self.link.greeted(sent, reply[0].time_out / 1000, new=not request.session_id)
        return reply

    def _submit(self, request: Any, timeout: float, xid: Any = None) -> None:
        self.link.counted()
        super()._submit(request, timeout, xid)

    def _send_ping(self, timeout: float) -> None:
        if not self.link.beats:
            super()._send_ping(timeout)

    def _read_watch_event(self, buffer: Any, offset: int) -> None:
        if self.link.streams:
            event, _ = Watch.deserialize(buffer, offset)
            for root, tell in self.link.streams.copy().items():
                if event.path.startswith(root):
                    tell(event.type, event.path)
        super()._read_watch_event(buffer, offset)
