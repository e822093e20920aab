"""A grant's state on the holder's side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.errors import LockLost, NotHeld
from holdfast.locks.session import Session
from holdfast.locks.telling import with_end
from holdfast.model import Claim
from holdfast.runtime.io import Event, Io
from holdfast.runtime.task import LoopTask

CallBack = Callable[[Callable[[], object]], None]
"""Calls a function of a user's, somewhere else."""


class Entry:
    """What one acquire gets and one release gives back. A hold has several where its owner has entered it again."""

    __slots__ = ("claim", "hold", "released", "session", "unhook")

    def __init__(self, session: Session, claim: Claim) -> None:
        self.session, self.claim = session, claim
        self.hold: Hold | None = None
        """What it is an entry of, once that is held."""
        self.released = False
        self.unhook: Callable[[], None] | None = None

    def end_hook(self) -> None:
        """Do not call this entry's `on_lost` any more. Other entries hold on, and have their own."""
        if self.unhook is not None:
            self.unhook()

    @property
    def token(self) -> int:
        return 0 if self.hold is None else self.hold.token

    @property
    def is_open(self) -> bool:
        """Whether it has to be given back still."""
        hold = self.hold
        return not self.released and hold is not None and not hold.withdrawn and hold.reason is None

    @property
    def held(self) -> Hold:
        """The hold of an entry that was granted."""
        assert self.hold is not None
        return self.hold


class Hold:
    """What is held by one claim, shared by the grant and its re-entries.

    It is good until the earlier of two deadlines, compared at every look: the session's and
    that of `max_hold`. Once lost it never comes back.
    """

    __slots__ = (
        "_event", "_io", "_set_event", "claim", "ends", "entries", "key", "on_lost", "reason", "released", "session",
        "slot", "token", "withdrawn",
    )  # fmt: skip

    def __init__(self, io: Io, entry: Entry, token: int, slot: int | None, ends: float) -> None:
        self._io, self.session, self.claim = io, entry.session, entry.claim
        self.token, self.slot, self.ends = token, slot, ends
        self.key = (self.claim.owner, self.claim.kind, self.claim.name)
        self.entries = {entry}
        entry.hold = self
        self.released = False
        self.withdrawn = False
        """Given back, but the engine has not confirmed it: the release may be repeated."""
        self.reason: str | None = None
        self.on_lost: list[tuple[Callable[[], object], CallBack]] = []
        """What to call when it is lost, and by whom."""
        self._event: Event | None = None
        self._set_event: Callable[[], None] | None = None

    @property
    def entry(self) -> Entry:
        """The entry of a hold that was entered once."""
        (entry,) = self.entries
        return entry

    @property
    def deadline(self) -> float:
        return min(self.session.deadline, self.ends)

    @property
    def remaining(self) -> float:
        if self.released or self.withdrawn or self.reason is not None:
            return 0.0
        return max(0.0, self.deadline - self._io.now())

    @property
    def valid(self) -> bool:
        return self.remaining > 0.0

    def task(self) -> LoopTask | None:
        """The task that is running now, if a loop runs one."""
        return self._io.task()

    def check(self) -> None:
        """Raise unless the grant is good now."""
        if self.released or self.withdrawn:
            raise NotHeld(self.claim.name, self.token)
        if self.reason is None and self._io.now() >= self.deadline:
            self.lose(self.why_over())
        if self.reason is not None:
            raise LockLost(self.claim.name, self.token, self.reason)

    def enter(self, entry: Entry) -> bool:
        """Its owner enters it again; False if it was released meanwhile."""
        with self.session.lock:
            if self.released:
                return False
            entry.hold = self
            self.entries.add(entry)
            return True

    def let_go(self, entry: Entry) -> bool | None:
        """One entry less; whether it was the last, so that the lock itself has to be given back. None if it was none.

        The last one stays an entry, so that a release that failed may be repeated.
        """
        with self.session.lock:
            if self.released or entry.released:
                return None
            entry.released = True
            if len(self.entries) == 1:
                self.released = True
                return True
            self.entries.discard(entry)
            return False

    def why_over(self) -> str:
        """What made the deadline pass."""
        if self.ends <= self.session.deadline:
            return "it was held longer than max_hold"
        return self.session.over or f"no heartbeat was confirmed within its ttl of {self.session.ttl:g} s"

    def lose(self, reason: str, then: Callable[[], None] | None = None) -> bool:
        """Say that it is lost: once, loudly. Callbacks run elsewhere; `then` is called when they have returned."""
        with self.session.lock:
            if self.reason is not None or self.released:
                return False
            self.reason = reason
            set_event, callbacks = self._set_event, list(self.on_lost)
        if set_event is not None:
            set_event()
        after = AfterAll(len(callbacks), then)
        for callback, call_back in callbacks:
            call_back(after.wrapped(callback))
        return True

    def when_lost(self, callback: Callable[[], Any], call_back: CallBack | None = None) -> Callable[[], None]:
        """Call this when it is lost, also if it is lost already; returns what makes it not be called.

        `call_back` is who calls it, if it is to be called in turn with something else.
        """
        call = (callback, call_back or self._io.call_back)
        with self.session.lock:
            waits = self.reason is None
            if waits:
                self.on_lost.append(call)
        if not waits:
            call[1](callback)
        return partial(self._call_no_more, call)

    def _call_no_more(self, call: tuple[Callable[[], object], CallBack]) -> None:
        with self.session.lock:
            if call in self.on_lost:
                self.on_lost.remove(call)

    def lost_event(self) -> Event:
        """The event that users wait for; made when first asked for."""
        with self.session.lock:
            if self._event is None:
                self._event, self._set_event = self._io.event()
            event, lost = self._event, self.reason is not None
        if lost:
            assert self._set_event is not None
            self._set_event()
        return event


class AfterAll:
    """Calls `then` when each of several callbacks has returned, in whatever threads they run."""

    def __init__(self, callbacks: int, then: Callable[[], None] | None) -> None:
        self._left, self._then = list(range(callbacks)), then
        if not callbacks and then is not None:
            then()

    def wrapped(self, callback: Callable[[], object]) -> Callable[[], object]:
        """The callback, counted; what it returns to be awaited counts until that is done."""
        return with_end(callback, self._returned)

    def _returned(self) -> None:
        # One step, and therefore without a lock: the last one takes the first number.
        if self._left.pop() == 0 and self._then is not None:
            self._then()
