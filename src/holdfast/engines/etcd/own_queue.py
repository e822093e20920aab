"""A client's own claims on one name: those with a key in etcd, in order, and those that are not sent yet.

A queue of thousands of claims of one client would cost etcd work in proportion to its length with every
step. So only the first of them asks etcd and watches. Each other one waits for the one before it in this
client, and what is known of that one is passed on: when a claim that held alone is gone, nothing is before
the claim whose direct predecessor it was.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.engines.claim_turns import NameTurns

if TYPE_CHECKING:
    from holdfast.engines.etcd.ledger import Entry

MOST_ENTERING = 16
"""How many claims of a client are on their way into one queue at a time; all others wait for their turn."""


def _order(entry: Entry) -> int:
    return entry.created


class OwnQueue:
    """Claims of one client on one name. Everything may be called in any thread."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._placed: list[Entry] = []
        """Those with a key, in the order of its creation."""
        self._turns = NameTurns()
        """Those that are on their way, and those that wait to be sent."""

    def __bool__(self) -> bool:
        return bool(self._placed or self._turns)

    # Before a claim is sent

    def admit(self, claim_id: str) -> bool:
        """Whether a claim may be sent now. If not, it is called when its turn has come."""
        with self._lock:
            return self._turns.admit(claim_id, MOST_ENTERING)

    def entered(self, claim_id: str) -> list[str]:
        """Its enter is over, however it went. Returns the claims whose turn has come."""
        with self._lock:
            return self._turns.end(claim_id, MOST_ENTERING)

    # Once it has a key

    def place(self, entry: Entry) -> None:
        """Its key was created at the revision `entry.created`."""
        with self._lock:
            if self._find(entry) is None:
                insort(self._placed, entry, key=_order)

    def _find(self, entry: Entry) -> int | None:
        at = bisect_left(self._placed, entry.created, key=_order)
        return at if at < len(self._placed) and self._placed[at] is entry else None

    def last(self) -> Entry | None:
        """The last one that came."""
        with self._lock:
            return self._placed[-1] if self._placed else None

    def first(self) -> Entry | None:
        """The first one that is there."""
        with self._lock:
            return self._placed[0] if self._placed else None

    def before(self, entry: Entry) -> Entry | None:
        """The nearest own claim before this one."""
        with self._lock:
            at = self._find(entry)
            return self._placed[at - 1] if at else None

    def strangers(self) -> int:
        """How many do not know which claim is directly before them."""
        with self._lock:
            return sum(entry.chained and entry.before is None for entry in self._placed)

    def learn(self, keys: Iterable[tuple[int, bytes]]) -> None:
        """Take from all keys of the queue, with their creation, which one is directly before each own claim."""
        with self._lock:
            own = {entry.key: entry for entry in self._placed if not entry.revision}
            before: tuple[bytes, int] | None = None
            for created, key in sorted(keys):
                entry = own.get(key)
                if entry is not None and entry.created == created and entry.claim.mode == "exclusive":
                    entry.before, entry.head = before, before is None
                before = key, created

    def remove(self, entry: Entry) -> list[str]:
        """It is over. Returns the claims that have to be woken: they are the next ones to ask, or to be sent."""
        with self._lock:
            woken = self._turns.end(entry.claim.id, MOST_ENTERING)
            at = self._find(entry)
            if at is None:
                return woken
            del self._placed[at]
            follower = self._placed[at] if at < len(self._placed) else None
            if follower is not None and follower.chained and not follower.revision:
                self._pass_on(entry, follower)
                if follower.head or at == 0:
                    woken.append(follower.claim.id)
            return woken

    @staticmethod
    def _pass_on(entry: Entry, follower: Entry) -> None:
        """What the end of a claim means for the next own one."""
        if follower.before != (entry.key, entry.created):
            return
        if entry.claim.mode != "exclusive":
            follower.before = None  # a reader does not know of other readers before it, which may hold
        elif entry.revision:
            follower.head = True
        else:
            follower.before, follower.head = entry.before, entry.head
