"""One watch stream for all that a client waits for.

The stream is read in a thread of its own. Should it break, or its endpoint fall silent, it is made
again at another one, and every watch goes on where it was: nothing is missed unless etcd has
compacted it away, and then whoever watches is told.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from holdfast.engines.etcd.http2 import CallFailed
from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.sockets import Stream
from holdfast.engines.etcd.wire import SERVICE, WATCH, Wire, serialize

_Request, _Create, _Cancel = message("WatchRequest"), message("WatchCreateRequest"), message("WatchCancelRequest")
_Response = message("WatchResponse")

DELETED = 1
"""The type of an event; 0 is a write."""
_NO_PUTS = 0
SIGN_IN = 1.0
MOST_IDLE = 256
FIRST_PAUSE, LAST_PAUSE = 0.05, 1.0

Hear = Callable[[Sequence[Any] | None], None]
"""Takes the events of one watch, those of a revision together; None if some were missed. In the stream's thread."""


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
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._watches: dict[int, Watch] = {}
        self._names: dict[str, int] = {}
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None
        self._idle: dict[bytes, int] = {}
        """By key: watches for its end that nobody waits for now. Whoever takes turns has the same one before it every
        time, and need not ask again. The first end that nobody waited for ends the watch as well."""
        self._stopped = False
        self._rest = threading.Event()

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
        with self._lock:
            self._drop(name)
            kept = self._idle.pop(key, None) if deletes_only and not end else None
            if kept is not None:
                self._names[name] = kept
                self._watches[kept].start, self._watches[kept].hear = start, hear
                return
            number = self._names[name] = next(self._numbers)
            watch = self._watches[number] = Watch(number, key, end, start, hear, deletes_only, with_former, fresh)
            self._send(watch.request())
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._run, name="holdfast-watch", daemon=True)
                self._thread.start()

    def unwatch(self, name: str, seen: int = 0) -> None:
        """End a watch, if there is one of this name. What happened up to the revision `seen` is known already."""
        with self._lock:
            self._drop(name, seen)

    def unwatch_all(self) -> None:
        """End every watch."""
        with self._lock:
            for name in list(self._names):
                self._drop(name)

    def _drop(self, name: str, seen: int = 0) -> None:
        number = self._names.pop(name, None)
        if number is None:
            return
        watch = self._watches[number]
        if not watch.of_an_end or watch.key in self._idle:
            self._cancel(number)
            return
        watch.hear, watch.start = None, max(watch.start, seen + 1)
        self._idle[watch.key] = number
        if len(self._idle) > MOST_IDLE:
            self._cancel(self._idle.pop(next(iter(self._idle))))

    def _cancel(self, number: int) -> None:
        del self._watches[number]
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
            stream.close()

    def stop(self) -> None:
        """End the stream and its thread."""
        with self._lock:
            self._stopped = True
            thread, stream = self._thread, self._stream
        self._rest.set()
        if stream is not None:
            stream.close()
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
            if self._read(at):
                pause = FIRST_PAUSE
                at = self._wire.current
            else:
                at += 1
                self._rest.wait(pause)
                pause = min(pause * 2, LAST_PAUSE)

    def _read(self, at: int) -> bool:
        """Read one stream to its end; whether anything came."""
        endpoints = self._wire.address.endpoints
        came = False
        stream: Stream | None = None
        # Its end is no error here: the loop around it makes another one.
        with suppress(CallFailed, OSError, ValueError):
            target, token = endpoints[at % len(endpoints)], self._wire.token(SIGN_IN)
            stream = Stream(self._wire.address, target, SERVICE + WATCH, token)
            with self._lock:
                if not self._stopped:
                    self._stream = stream
                    self._forget_idle()
                    for watch in self._watches.values():
                        self._send(watch.request())
            while not self._stopped:
                for message in stream.receive():
                    came = True
                    self._heard(_Response.FromString(message))
        with self._lock:
            self._stream = None
        if stream is not None:
            stream.close()
        return came

    def _forget_idle(self) -> None:
        while self._idle:
            del self._watches[self._idle.popitem()[1]]

    def _heard(self, response: Any) -> None:
        events: Sequence[Any] | None = response.events
        with self._lock:
            watch = self._watches.get(response.watch_id)
            if watch is None:
                return
            hear = watch.hear
            if events and watch.of_an_end and events[-1].kv.mod_revision < watch.start:
                return  # known, or of the time before somebody took it over
            if hear is None and (events or response.canceled):
                del self._idle[watch.key]
                self._cancel(watch.number)
                return
            if response.canceled:
                # Compacted away, or refused: what happened in between is not known.
                watch.start, events = max(response.compact_revision, response.header.revision) + 1, None
                self._send(watch.request())
            elif response.created:
                missed = watch.fresh and response.header.revision >= watch.start
                if watch.fresh:
                    watch.fresh, watch.start = False, max(watch.start, response.header.revision + 1)
                if not missed:
                    return
                events = None
            elif events:
                # What is caught up with comes in portions, under the header of today.
                watch.start = events[-1].kv.mod_revision + 1
        if hear is not None:
            hear(events)
