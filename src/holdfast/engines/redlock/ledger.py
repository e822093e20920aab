"""What a Redlock client has claimed, and what it still owes to nodes that did not answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Debt:
    """A claim that is given back, and that some nodes have not confirmed yet."""

    claim_id: str
    lock: str
    nodes: frozenset[int]
    ends: float
    """After this the nodes have forgotten it by themselves."""
    due: float = 0.0
    """Before this their answers may still come, and they are not told again."""


class Ledger:
    """The claims of one client's session, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        """Reentrant: a signal handler that gives something back may have come upon its thread in here."""
        self.trying: set[str] = set()
        """Claims for which nodes are being asked at this moment."""
        self.begin("")

    def begin(self, session: str) -> None:
        """Start anew, with a new session, or with none."""
        with self._lock:
            self._begin(session)

    def _begin(self, session: str) -> None:
        self.session = session
        self._held: dict[str, str] = {}
        """By claim id: the lock of a grant that a majority has confirmed."""
        self._doubtful: dict[str, frozenset[int]] = {}
        """By claim id: nodes that were asked for it and have not answered."""
        self._spoilt: set[str] = set()
        """Claims of waiters that nodes may yet give back, late: what such a claim takes now can be taken from it."""
        self._pauses: dict[str, Iterator[float]] = {}
        self._beat_began = 0.0
        self.confirmed = 0.0
        """When the last heartbeat began that confirmed everything that was held."""
        self.debts: dict[Debt, None] = {}
        """In order, and each one is found at once, however many there are."""

    def beat(self, now: float) -> dict[str, str]:
        """A heartbeat begins; what it has to keep."""
        with self._lock:
            self._beat_began = now
            return self._held.copy()

    def hold(self, session: str, claim_id: str, lock: str, proof: float) -> bool:
        """Keep a grant that was confirmed by requests sent at `proof` or later.

        False if a heartbeat has begun since: its answer moves the deadline of everything that is
        held, and this one was not in it. False too if its session has ended while the nodes were asked:
        nobody would give it back, and the heartbeats of the next session would keep it for ever.
        """
        with self._lock:
            if self.session != session or self._beat_began > proof:
                return False
            self._held[claim_id] = lock
            self._pauses.pop(claim_id, None)
            return True

    def holds(self, claim_id: str) -> bool:
        """Whether it is held, as far as anybody here knows."""
        return claim_id in self._held

    def doubt(self, claim_id: str, nodes: frozenset[int]) -> None:
        """These nodes did not answer: they may carry it out later."""
        if nodes:
            with self._lock:
                self._doubtful[claim_id] = self._doubtful.get(claim_id, frozenset()) | nodes

    def doubtful(self, claim_id: str) -> bool:
        """Whether a node may still carry out a request for it."""
        return claim_id in self._doubtful

    def spoil(self, claim_id: str) -> None:
        """It was given back to be tried again, and no majority has confirmed that."""
        with self._lock:
            self._spoilt.add(claim_id)

    def over(self, claim_id: str) -> None:
        """A majority knows that it is given back for good: nobody tries it again."""
        with self._lock:
            self._spoilt.discard(claim_id)

    def spoilt(self, claim_id: str) -> bool:
        """Whether it must not be tried again."""
        return claim_id in self._spoilt

    def forget(self, claim_id: str, for_good: bool) -> None:
        """It is given back: for good, or until it is tried again. A waiter's pauses grow from try to try."""
        with self._lock:
            self._held.pop(claim_id, None)
            if for_good:
                self._pauses.pop(claim_id, None)

    def settle(self, claim_id: str) -> None:
        """Every node knows that it is over."""
        with self._lock:
            self._doubtful.pop(claim_id, None)

    def pause(self, claim_id: str, begin: Iterator[float]) -> float:
        """How long a waiter pauses before it tries again."""
        with self._lock:
            return next(self._pauses.setdefault(claim_id, begin))

    def owe(self, debt: Debt) -> None:
        """Some nodes have not confirmed that a claim is given back."""
        with self._lock:
            self.debts[debt] = None

    def paid(self, debt: Debt) -> None:
        """Every node knows that it is over, or has forgotten it. Its session may have ended meanwhile."""
        with self._lock:
            self._doubtful.pop(debt.claim_id, None)
            self.debts.pop(debt, None)
