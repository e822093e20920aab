"""Where the keeper waits: rung by whoever wants it to look up, and by what Redis publishes to its session."""

from __future__ import annotations

import select
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from hiredis import ProtocolError, Reader, ReplyError

from holdfast.engines.alarm import Alarm
from holdfast.engines.resp.blocking import MOST_REPEATS, Connection, connect
from holdfast.engines.resp.wire import Lost, pack
from holdfast.runtime import clock

if TYPE_CHECKING:
    from holdfast.engines.redis.route import Route

RETRY = 0.5
"""How long a lost subscription is left alone after a try to renew it failed."""
PATIENCE = 0.5
"""How long such a try may take: heartbeats wait meanwhile."""


class Bell(Alarm):
    """A flag that any thread sets, and one subscription for all that this client waits for.

    Messages are handed on in the thread that waits, which is the keeper's. Should the
    subscription be lost it is made again, and `missed` is called: whatever was published in
    between is not known.
    """

    def __init__(self, route: Route, prefix: str, deliver: Callable[[bytes], None], missed: Callable[[], None]) -> None:
        super().__init__()
        self._route, self._prefix, self._deliver, self._missed = route, prefix, deliver, missed
        self._session: str | None = None
        self._connection: Connection | None = None
        # Not select(): it cannot watch file number 1024 and beyond.
        self._poll = select.poll()
        self._poll.register(self.descriptor, select.POLLIN)
        self._tls = route.tls is not None
        self._retry_at = 0.0
        self._pinged = self._heard = 0.0

    # In the keeper's thread

    def listen(self, session: str, until: float) -> None:
        """Subscribe to what is published to a session; Lost if that cannot be done in time."""
        self._session = session
        self._drop()
        for attempt in range(MOST_REPEATS):
            try:
                self._subscribe(until)
                return
            except Lost as lost:
                broken = lost.cut or (lost.sent and not lost.silent)
                if not broken or attempt == MOST_REPEATS - 1:
                    raise

    def _subscribe(self, until: float) -> None:
        connection = connect(self._route, until)
        try:
            reply = connection.run(pack(("SUBSCRIBE", f"{self._prefix}notices:{self._session}")), until)
            if isinstance(reply, ReplyError):
                # A user without rights to the channels, which is what Redis makes unless told: scripts that wake others
                # would fail half-way.
                raise Lost(f"SUBSCRIBE was refused: {reply}", sent=False)
        except BaseException:
            connection.close()
            raise
        connection.socket.setblocking(False)
        self._poll.register(connection.socket.fileno(), select.POLLIN)
        self._connection = connection
        self._heard = clock.now()
        self._pinged = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        """Until the bell is rung or the time is over; hands on what is published meanwhile."""
        until = None if timeout is None else clock.now() + timeout
        while not self._rung:
            left = None if until is None else until - clock.now()
            if left is not None and left <= 0:
                return False
            if self._connection is None and self._session is not None:
                self._resubscribe()
                if self._connection is None:
                    # Not for longer than until the next try.
                    left = RETRY if left is None else min(left, RETRY)
            self._sleep(left)
        return True

    def _sleep(self, left: float | None) -> None:
        """Wait for a ring or for something published, and take it."""
        connection = self._connection
        if connection is not None and self._tls and connection.socket.pending():  # type: ignore[attr-defined]
            # Decrypted already: no file number tells of it.
            self._hear()
            return
        for number, _ in self._poll.poll(None if left is None else left * 1000):
            if number == self.descriptor:
                self.empty()
            elif self._connection is not None:
                self._hear()

    def _resubscribe(self) -> None:
        now = clock.now()
        if now < self._retry_at:
            return
        self._retry_at = now + RETRY
        try:
            self._subscribe(now + PATIENCE)
        except Lost:
            return
        self._missed()

    def _hear(self) -> bool:
        """Take what has arrived; whether there was anything."""
        assert self._connection is not None
        try:
            received = self._connection.socket.recv(65536)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            received = b""
        if not received:
            self._drop()
            return True
        self._heard = clock.now()
        reader: Reader = self._connection.reader
        try:
            reader.feed(received)
            message = reader.gets()
            while message is not False:
                if isinstance(message, list) and message[0] == b"message":
                    self._deliver(message[2])
                message = reader.gets()
        except ProtocolError:
            self._drop()
        return True

    def check(self) -> None:
        """Called with every heartbeat: a subscription that did not answer since the last one is made again."""
        if self._connection is None:
            return
        if self._connection.address != (self._route.current or self._connection.address):
            # Requests go elsewhere now. A node that has left its cluster is told of nothing that is published there.
            self._drop()
            return
        if self._pinged > self._heard:
            # It may have answered while nobody listened.
            if not self._hear():
                self._drop()
            return
        try:
            self._connection.socket.send(pack(("PING",)))
            self._pinged = clock.now()
        except (BlockingIOError, ssl.SSLWantWriteError):
            return
        except OSError:
            self._drop()

    def _drop(self) -> None:
        # Taken out first: a `close` that was interrupted is called again.
        connection, self._connection = self._connection, None
        if connection is not None:
            self._poll.unregister(connection.socket.fileno())
            connection.close()

    def close(self) -> None:
        self._session = None
        self._drop()
        super().close()
