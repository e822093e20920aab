"""One ZooKeeper session by kazoo: its connection, its states, and nothing that outlives it.

kazoo goes on by itself under a new session when one has expired, and keeps a session alive
by pings of its own. Neither is wanted here: a link ends with its session, and only
Holdfast's heartbeat keeps it alive, so that a client whose keeper has stopped is gone.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kazoo.protocol.serialization import CloseInstance
from kazoo.protocol.states import KazooState, KeeperState

from holdfast.engines.zookeeper.address import ZooKeeperAddress
from holdfast.engines.zookeeper.answer import Answer
from holdfast.engines.zookeeper.connection import AddWatch, Connection, DirectHandler, Kazoo, Message
from holdfast.engines.zookeeper.life import Grant
from holdfast.engines.zookeeper.server_clock import ServerClock
from holdfast.engines.zookeeper.token_table import TokenTable

# What kazoo has to say about a lost connection, the keeper says too.
_log = logging.getLogger("holdfast.kazoo")
_log.setLevel(logging.ERROR)

RETRY = {"max_tries": -1, "delay": 0.03, "backoff": 1.4, "max_delay": 0.4, "max_jitter": 0.2}
LONGEST_DIAL, SHORTEST_DIAL = 2.0, 0.5
"""How long one server may take to accept a connection, and to greet, in seconds."""

Told = Callable[[int, str], None]
"""Takes the type and the path of what happened under a watched path, in the connection's thread."""


class Link:
    """One session with the ensemble. Once it is over it stays over."""

    def __init__(self, address: ZooKeeperAddress, ttl: float, *, beats: bool) -> None:
        self.beats = beats
        self.over: str | None = None
        """Why it has ended, once it has."""
        self.problem = ""
        """What went wrong when it last tried to connect, for messages."""
        self.negotiated = ttl
        """The shortest timeout that a server has granted this session, in seconds."""
        self.attached_at = 0.0
        """When the request was sent by which the present server took the session on: its leader knows of that."""
        self.counted: Callable[[], None] = lambda: None
        """Called for every request."""
        self.unanswered = 0
        """How many heartbeats in a row had no answer in time."""
        self.streams: dict[str, Told] = {}
        """By path: who is told of everything under it."""
        self.beat_zxid = 0
        """That of the last heartbeat."""
        self.beat_version = 0
        """The version that the last heartbeat has written: one more than the heartbeat before it."""
        self.tokens: TokenTable | None = None
        """How zxids become tokens; None until it was read."""
        self.gone: dict[str, str] = {}
        """Claims that others have ended, and why."""
        self.noted = False
        """Whether somebody has left word since the last look."""
        self.notes_version = 0
        self.clock = ServerClock()
        self.shorter: Grant | None = None
        """What the last server granted that granted less than those before it."""
        self.changed: Callable[[Link], None] = lambda link: None
        self.shortened: Callable[[Link], None] = lambda link: None
        """Called when a server grants less than those before it, in the connection's thread."""
        self._waiters: deque[Callable[[], None]] = deque()
        self._mourners: deque[Callable[[], None]] = deque()
        handler = DirectHandler(address, max(SHORTEST_DIAL, min(LONGEST_DIAL, ttl / 6)))
        self.kazoo: Any = Kazoo(
            ",".join(address.hosts), timeout=ttl, handler=handler, connection_retry=RETRY, logger=_log,
            **address.settings,
        )  # fmt: skip
        sasl = self.kazoo._connection.sasl_options
        retry = self.kazoo._conn_retry.copy()
        self.kazoo._connection = Connection(self, self.kazoo, retry, logger=_log, sasl_options=sasl)
        self.kazoo.add_listener(self._hear)
        handler.ended = self._ended

    def greeted(self, sent: float, negotiated: float, *, new: bool) -> None:
        """A server took the session on, at a request that was sent then, and grants this; in the connection's thread.

        A server that grants less counts by that from now on, whatever was confirmed before. One that grants more is
        not believed: a leader that takes over begins with the timeout that the session was created with.
        """
        self.attached_at = sent
        if new or negotiated < self.negotiated:
            self.negotiated = negotiated
            if not new:
                self.shorter = Grant(sent, negotiated)
                self.shortened(self)

    def start(self) -> None:
        """Begin to connect; does not wait."""
        self.kazoo.start_async()

    @property
    def connected(self) -> bool:
        return self.over is None and bool(self.kazoo.connected)

    @property
    def session_id(self) -> int:
        """What the ensemble calls this session: the owner of its ephemeral nodes."""
        return int(self.kazoo._session_id or 0)

    def when_changed(self, callback: Callable[[], None]) -> None:
        """Call this once, when the link is connected or over; at once if it is."""
        self._waiters.append(callback)
        # Looked at after it was added: a change before that has not called it.
        if self.connected or self.over is not None:
            _call_each(self._waiters)

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call this once, when the link is over; at once if it is."""
        self._mourners.append(callback)
        if self.over is not None:
            _call_each(self._mourners)

    def _hear(self, state: str) -> None:
        """kazoo's word on the connection, in the connection's thread."""
        if state == KazooState.LOST:
            # Before kazoo goes on under another session: nothing of ours may ever be sent there.
            self.kazoo._stopped.set()
            refused = self.kazoo.client_state == KeeperState.AUTH_FAILED
            self._end("the login was refused" if refused else "its session has expired")
        if state != KazooState.SUSPENDED:
            _call_each(self._waiters)
        self.changed(self)

    def _end(self, reason: str) -> None:
        self.over = self.over or reason
        _call_each(self._mourners)

    def _ended(self) -> None:
        """The connection's thread is about to end."""
        self._end("its connection was closed")
        _call_each(self._waiters)
        self.kazoo.close()

    def hang_up(self) -> None:
        """Drop the connection, from any thread: kazoo tries the next server."""
        broken = self.kazoo._connection._socket
        if broken is not None:
            with suppress(OSError):
                broken.shutdown(socket.SHUT_RDWR)

    def say_farewell(self) -> None:
        """End the session at the ensemble; the link is over when that is answered."""
        self.changed = lambda link: None
        self.kazoo._stopped.set()
        self.kazoo.send(Message(CloseInstance), None)

    def close(self) -> None:
        """End the connection without a farewell, and do not wait for that."""
        self._end("it was closed")
        self.changed = lambda link: None
        self.kazoo._stopped.set()
        self.hang_up()

    def drop_watch(self, path: str, woken: Callable[..., None]) -> None:
        """Call this back no more. The server's own watch stays until it fires."""
        for kept in (self.kazoo._child_watchers, self.kazoo._data_watchers):
            # The set itself stays, also an empty one: another may be put into it at this moment.
            if path in kept:
                kept[path].discard(woken)

    def add_watch(self, path: str, tell: Told) -> Answer:
        """Be told of everything under a path from now on; the answer to that."""
        self.streams[path] = tell
        answer = Answer()
        self.kazoo._call(AddWatch(path, 1), answer)
        return answer


def _call_each(callbacks: deque[Callable[[], None]]) -> None:
    """Call each callback that is there now, once. Two threads may do so at once; one is taken out by one step."""
    for _ in range(len(callbacks)):
        try:
            callback = callbacks.popleft()
        except IndexError:
            return
        callback()


class Batch:
    """Calls `done` when each of several requests has its answer."""

    def __init__(self, results: Sequence[Any], done: Callable[[], None]) -> None:
        self._left, self._done = list(range(len(results))), done
        for result in results:
            result.rawlink(self._one)

    def _one(self, _: Any) -> None:
        # One step, and therefore without a lock: the last one takes the first number.
        if self._left.pop() == 0:
            self._done()
