"""What a client knows of its own claims, and of those of others whose time is counted."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.core.table.rows import Session
from holdfast.engines.etcd.hold_clock import HoldClock
from holdfast.engines.etcd.keys import Record, Row
from holdfast.engines.etcd.own_queue import OwnQueue
from holdfast.errors import EngineFailure
from holdfast.model import Claim
from holdfast.runtime import clock
from holdfast.runtime.calls import UNDER_WAY, is_inside

NOBODY = Session("", 0.0, 0.0)
MOST_REMEMBERED = 1_000


def _nobody(claim_id: str) -> None:
    """Wakes no claim: there is no client yet."""


@dataclass(slots=True)
class Entry:
    """One claim of this client."""

    record: Record
    key: bytes
    """Its key; that of the claim it was adopted from, once it was."""
    line: str = ""
    """What its key starts with, if the key's end is a number that no other claim of the session has there."""
    seat: int = 0
    doubtful: bool = False
    """Whether its enter was sent more than once: a try that comes when the claim is over has to find a tombstone."""
    created: int = 0
    """The revision at which it came into the line; 0 until that is known."""
    revision: int = 0
    """The revision of the write that confirmed the grant; 0 until then."""
    granted_at: float = 0.0
    """When this client learned of the grant, on its own clock; of an adopted one, when it asked how long is left."""
    hold_clock: HoldClock | None = None
    """What tells an adopter how much of `max_hold` is left; None before the first hand-over."""
    adopting: bytes = b""
    """What its adoption writes into the key of another claim: no other write has this value."""
    offered: bool = False
    """Whether there may be a ticket by which another client adopts it."""
    slot: int | None = None
    position: int = 0
    queue: OwnQueue | None = None
    """The claims of this client on the same name."""
    queue_of: str = ""
    sent: bool = False
    """Whether a request that may create its key was sent."""
    chained: bool = False
    """Whether it waits for the own claim before it, and watches nothing."""
    before: tuple[bytes, int] | None = None
    """The key that is directly before its own in the queue, and its creation; None if that is not known."""
    head: bool = False
    """Whether nothing is before it, once `before` is gone."""
    ahead: bytes = b""
    """The key whose end it waits for."""
    called: bool = False
    """Whether that has ended, and etcd was not asked since."""
    guess: int = 0
    """A permit that may be free."""

    checked: int = 0
    """The watch stream, by its number, under which etcd last said that the grant is there."""

    @property
    def claim(self) -> Claim:
        return self.record.claim

    def grant(self, revision: int) -> None:
        """It is granted by the write of this revision."""
        if not self.revision:
            self.revision, self.granted_at = revision, self.granted_at or clock.now()

    @property
    def hold_left(self) -> float | None:
        """How long it may still be held, if that is limited."""
        limit = self.claim.max_hold
        return None if limit is None else max(0.0, limit - (clock.now() - self.granted_at))


@dataclass(slots=True)
class Overdue:
    """Somebody's claim that has to go at a time on this client's clock, unless it was written anew."""

    row: Row
    due: float
    reason: str


class Ledger:
    """The claims of one client's session, from any thread."""

    def __init__(self, address: str, lock: threading.RLock) -> None:
        self._address = address
        self._lock = lock
        """One for all that this client knows. Reentrant, so that a thread can tell that it has it."""
        self.base = 0
        """What is added to a revision to make a token; 0 until it was read. Never 0 again: tokens are made of it."""
        self.base_revision = 0
        self.base_until = 0.0
        """When whoever has no session reads it again."""
        self.wake: Callable[[str], object] = _nobody
        """Wakes a claim of this client that waits."""
        self.seen: dict[tuple[bytes, int], float] = {}
        """By key and its creation: when etcd last said that it is still ahead of a claim of this client."""
        self._freed: dict[str, int] = {}
        """By line: the permit that this client gave back last."""
        self.begin(NOBODY)

    def begin(self, session: Session, base: int = 0, base_revision: int = 0) -> None:
        """Start anew, with a new session."""
        with self._lock:
            self.session = session
            self.base, self.base_revision = base, base_revision
            self.revision = 0
            """The highest revision that etcd has answered with."""
            self.entries: dict[str, Entry] = {}
            self.strays: dict[str, Row] = {}
            """Claims that etcd has of this session and this client does not: those that were listed last."""
            self.overdue: dict[bytes, Overdue] = {}
            self._queues: dict[str, OwnQueue] = {}
            self._owners: dict[str, set[str]] = {}
            """By owner: its claims, and perhaps some that are gone."""
            self._seats = defaultdict[str, int](int)
            """By line: a bit for each number that a claim of this session has there."""

    def learn_base(self, base: int, revision: int, until: float) -> None:
        """Somebody read the base, who may have no session. Whoever has one knows the last."""
        with self._lock:
            self.base_until = until
            if revision >= self.base_revision:
                self.base, self.base_revision = base, revision

    def enter(self, record: Record, line: str) -> Entry:
        """A claim is about to be sent; its entry, with a key that no other claim has."""
        self._check_free()
        with self._lock:
            entry = self.entries.get(record.claim.id)
            if entry is None:
                seat = self._take_seat(line)
                entry = self._add(Entry(record, f"{line}{seat}".encode(), line, seat))
            return entry

    def _check_free(self) -> None:
        """Raise EngineUnavailable if a step of this thread is under way."""
        if is_inside(self._lock):
            raise EngineFailure(self._address, UNDER_WAY, "not done")

    def queue(self, entry: Entry, line: str) -> OwnQueue:
        """The own claims on the name of an entry."""
        if entry.queue is None:
            with self._lock:
                entry.queue = self._queues.setdefault(line, OwnQueue(self._lock))
                entry.queue_of = line
        return entry.queue

    def entered(self, entry: Entry) -> None:
        """The enter of this claim is over: the next ones may be sent."""
        if entry.queue is not None:
            for claim_id in entry.queue.entered(entry.claim.id):
                self.wake(claim_id)

    def still_ahead(self, before: tuple[bytes, int]) -> None:
        """etcd has just said that this key is still there, and was not made anew by a later claim."""
        if len(self.seen) > MOST_REMEMBERED:
            self.seen.clear()
        self.seen[before] = clock.now()

    def _take_seat(self, line: str) -> int:
        """The lowest number that is free.

        One comes again when its claim is gone. etcd looks at every key that ever was in a range until it is compacted:
        a line in which each claim had a key of its own would become slower with each.
        """
        taken = self._seats[line]
        lowest = ~taken & (taken + 1)
        self._seats[line] = taken | lowest
        return lowest.bit_length() - 1

    def adopt(self, entry: Entry) -> Entry:
        """A claim is about to be sent that takes over the key of another one."""
        self._check_free()
        with self._lock:
            return self.entries.get(entry.claim.id) or self._add(entry)

    def _add(self, entry: Entry) -> Entry:
        claim = entry.claim
        self._owners.setdefault(claim.owner, set()).add(claim.id)
        self.entries[claim.id] = entry
        return entry

    def get(self, claim_id: str) -> Entry | None:
        """The entry of a claim. Every verb asks for it before it sends anything."""
        self._check_free()
        return self.entries.get(claim_id)

    def free_slot(self, line: str) -> int:
        """A permit that may well be free."""
        return self._freed.get(line, 0)

    def freed(self, line: str, slot: int) -> None:
        """This client gave a permit back."""
        if len(self._freed) > MOST_REMEMBERED:
            self._freed.clear()
        self._freed[line] = slot

    def busy(self, owner: str) -> bool:
        """Whether an owner has more than one claim: only then can it be part of a deadlock."""
        with self._lock:
            claims = self._owners.get(owner, set())
            claims.intersection_update(self.entries)
            return len(claims) > 1

    def forget(self, claim_id: str, *, retire: bool = False) -> None:
        """It is gone. `retire`: its key may not be, or something that ends it may still be on its way.

        An interrupt may come between any two lines. What others wait for is done first, and can be repeated.
        """
        entry = self.get(claim_id)
        if entry is None:
            return
        if entry.queue is not None:
            for each in entry.queue.remove(entry):
                self.wake(each)
        with self._lock:
            if self.entries.get(claim_id) is not entry:
                return  # another thread was faster
            claims = self._owners.get(entry.claim.owner, set())
            claims.discard(claim_id)
            if not claims:
                self._owners.pop(entry.claim.owner, None)
            if entry.line and not retire:
                # Without a call, and therefore without an interrupt: a number is given back once, and surely.
                line, entry.line = entry.line, ""
                self._seats[line] &= ~(1 << entry.seat)
                if not self._seats[line]:
                    del self._seats[line]
            if not entry.queue and self._queues.get(entry.queue_of) is entry.queue:
                self._queues.pop(entry.queue_of, None)
            # Last: an interrupt before this leaves an entry, which the next try finds.
            self.entries.pop(claim_id, None)

    def count_down(self, row: Row, seconds: float, reason: str) -> None:
        """A claim of somebody else ends so many seconds after it was first seen, if it is still the same then."""
        with self._lock:
            known = self.overdue.get(row.key)
            if known is None or known.row.modified != row.modified or known.due > clock.now() + seconds:
                self.overdue[row.key] = Overdue(row, clock.now() + seconds, reason)

    def due(self) -> list[Overdue]:
        """Those whose time is over."""
        now = clock.now()
        with self._lock:
            found = [each for each in self.overdue.values() if each.due <= now]
            for each in found:
                del self.overdue[each.row.key]
            return found

    def next_death(self) -> float | None:
        """In how many seconds the next one ends."""
        with self._lock:
            soonest = min((each.due for each in self.overdue.values()), default=None)
        return None if soonest is None else max(0.0, soonest - clock.now())
