"""One watch stream for all that a client waits for.

The stream is read in a thread of its own. Should it break, or its endpoint fall silent, it is made
again at another one, and every watch goes on where it was: nothing is missed unless etcd has
compacted it away, and then whoever watches is told.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.engines.etcd.http2 import CallFailed
from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.sockets import Stream
from holdfast.engines.etcd.wire import SERVICE, WATCH, Wire, serialize
from holdfast.runtime import clock
from holdfast.runtime.blocking import ThreadSignal
from holdfast.runtime.calls import new_lock

_Request, _Create, _Cancel = message("WatchRequest"), message("WatchCreateRequest"), message("WatchCancelRequest")
_Response = message("WatchResponse")

DELETED = 1
"""The type of an event; 0 is a write."""
_NO_PUTS = 0
SIGN_IN = 1.0
MOST_IDLE = 256
FIRST_PAUSE, LAST_PAUSE = 0.05, 1.0
ELSEWHERE = 10.0
"""Seconds that a stream stays at another member than the calls."""

Hear = Callable[[Sequence[Any] | None], None]
"""Takes the events of one watch, those of a revision together; None if some were missed. In the stream's thread."""


class Refused(Exception):
    """The server does not let this token watch."""

    def __init__(self, token: str) -> None:
        self.token = token
        super().__init__()


@dataclass(slots=True)
class Watch:
    """One range, from a revision on."""

    number: int
    key: bytes
    end: bytes
    start: int
    hear: Hear | None
    """Nobody, if it is idle."""
    deletes_only: bool
    """Whether writes are of no interest."""
    with_former: bool
    """Whether what was there before is sent too."""
    fresh: bool = False
    """Whether it begins when etcd hears of it: one that begins earlier is served by a loop that turns ten times a
    second. Whoever watches is told to look again if something was written in between."""

    @property
    def of_an_end(self) -> bool:
        """Whether it is for the end of one key: such a one may be kept and taken over."""
        return self.deletes_only and not self.end

    def request(self) -> Any:
        return _Request(
            create_request=_Create(
                key=self.key,
                range_end=self.end,
                start_revision=0 if self.fresh else self.start,
                filters=[_NO_PUTS] if self.deletes_only else [],
                prev_kv=self.with_former,
                watch_id=self.number,
            )
        )


class Watcher:
    """Watches for one client. Everything may be called in any thread."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.lock = new_lock()
        """Also over the claims of the client: a thread that has it begins no other step."""
        self._numbers = itertools.count(1)
        self._watches: dict[int, Watch] = {}
        self._names: dict[str, int] = {}
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None
        self._idle: dict[bytes, int] = {}
        """By key: watches for its end that nobody waits for now. Whoever takes turns has the same one before it every
        time, and need not ask again. The first end that nobody waited for ends the watch as well."""
        self._stopped = False
        self._rest = ThreadSignal()
        self.streams = 0
        """How many there were."""
        self.reconnected: Callable[[], None] = lambda: None
        """Called when a stream was made after the first one."""

    def watch(
        self,
        name: str,
        key: bytes,
        start: int,
        hear: Hear,
        *,
        end: bytes = b"",
        deletes_only: bool = False,
        with_former: bool = False,
        fresh: bool = False,
    ) -> None:
        """Begin to watch, in the place of what was watched under this name before."""
        with self.lock:
            self._drop(name)
            # An interrupt may come between any two of these lines: a watch without a name is heard once at most.
            kept = self._idle.pop(key, None) if deletes_only and not end else None
            idle = None if kept is None else self._watches.get(kept)
            if idle is not None:
                self._names[name] = idle.number
                idle.start, idle.hear = start, hear
                return
            number = next(self._numbers)
            watch = self._watches[number] = Watch(number, key, end, start, hear, deletes_only, with_former, fresh)
            self._names[name] = number
            self._send(watch.request())
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._run, name="holdfast-watch", daemon=True)
                self._thread.start()

    def unwatch(self, name: str, seen: int = 0) -> None:
        """End a watch, if there is one of this name. What happened up to the revision `seen` is known already."""
        with self.lock:
            self._drop(name, seen)

    def unwatch_all(self) -> None:
        """End every watch."""
        with self.lock:
            for name in list(self._names):
                self._drop(name)

    def _drop(self, name: str, seen: int = 0) -> None:
        number = self._names.pop(name, None)
        if number is None:
            return
        watch = self._watches.get(number)
        if watch is None:
            return
        if not watch.of_an_end or watch.key in self._idle:
            self._cancel(number)
            return
        watch.hear, watch.start = None, max(watch.start, seen + 1)
        self._idle[watch.key] = number
        if len(self._idle) > MOST_IDLE:
            self._cancel(self._idle.pop(next(iter(self._idle))))

    def _cancel(self, number: int) -> None:
        self._watches.pop(number, None)
        self._send(_Request(cancel_request=_Cancel(watch_id=number)))

    def _send(self, request: Any) -> None:
        if self._stream is not None:
            if self._wire.counted is not None:
                self._wire.counted(WATCH)
            self._stream.send(serialize(request))

    def restart(self) -> None:
        """The endpoint has fallen silent: go on at another one."""
        stream = self._stream
        if stream is not None:
            stream.end()

    def stop(self) -> None:
        """End the stream and its thread."""
        with self.lock:
            self._stopped = True
            thread, stream = self._thread, self._stream
        self._rest.set()
        if stream is not None:
            stream.end()
        if thread is not None and thread is not threading.current_thread():
            thread.join(2.0)

    def abandon(self) -> None:
        """This process is a fork: the stream is its parent's."""
        if self._stream is not None:
            self._stream.drop()

    # In the stream's thread

    def _run(self) -> None:
        pause = FIRST_PAUSE
        at = self._wire.current
        while not self._stopped:
            try:
                came = self._read(at)
            except Refused as refusal:
                # The server was started again, or the token has run out. A right that is missing comes back as well.
                self._wire.forget_token(refusal.token)
                came = False
            if came:
                pause = FIRST_PAUSE
                at = self._wire.current
            else:
                at += 1
                self._rest.wait(pause)
                pause = min(pause * 2, LAST_PAUSE)

    def _read(self, at: int) -> bool:
        """Read one stream to its end; whether anything came. Refused if the server does not let it watch."""
        endpoints = self._wire.address.endpoints
        at %= len(endpoints)
        came = False
        stream: Stream | None = None
        # Its end is no error here: the loop around it makes another one.
        try:
            token = self._wire.token(SIGN_IN)
            stream = Stream(self._wire.address, endpoints[at], SERVICE + WATCH, token)
            since = clock.now()
            with self.lock:
                if not self._stopped:
                    self._stream = stream
                    self._forget_idle()
                    for watch in self._watches.values():
                        self._send(watch.request())
            self.streams += 1
            if self.streams > 1:
                self.reconnected()
            # A stream that had to go elsewhere returns to the member that answers the calls.
            while not self._stopped and (at == self._wire.current or clock.now() < since + ELSEWHERE):
                for message in stream.receive():
                    came = True
                    if not self._heard(_Response.FromString(message)):
                        raise Refused(token)
        except (CallFailed, OSError, ValueError):
            return came
        finally:
            with self.lock:
                self._stream = None
            if stream is not None:
                stream.close()
        return came

    def _forget_idle(self) -> None:
        while self._idle:
            self._watches.pop(self._idle.popitem()[1], None)

    def _heard(self, response: Any) -> bool:
        """Take what the server has said of one watch; False if it does not allow it."""
        events: Sequence[Any] | None = response.events
        with self.lock:
            watch = self._watches.get(response.watch_id)
            if response.canceled and not response.compact_revision and (response.created or watch is not None):
                return False
            if watch is None:
                return True
            hear = watch.hear
            if events and watch.of_an_end and events[-1].kv.mod_revision < watch.start:
                return True  # known, or of the time before somebody took it over
            if hear is None and (events or response.canceled):
                self._idle.pop(watch.key, None)
                self._cancel(watch.number)
                return True
            if response.canceled:
                # Compacted away: what happened in between is not known.
                watch.start, events = max(response.compact_revision, response.header.revision) + 1, None
                self._send(watch.request())
            elif response.created:
                missed = watch.fresh and response.header.revision >= watch.start
                if watch.fresh:
                    watch.fresh, watch.start = False, max(watch.start, response.header.revision + 1)
                if not missed:
                    return True
                events = None
            elif events:
                # What is caught up with comes in portions, under the header of today.
                watch.start = events[-1].kv.mod_revision + 1
        if hear is not None:
            hear(events)
        return True
