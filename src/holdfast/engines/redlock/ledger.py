"""What a Redlock client has claimed, and what it still owes to nodes that did not answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from holdfast.engines.claim_turns import ClaimTurns
from holdfast.runtime.calls import new_lock


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


@dataclass(frozen=True, slots=True)
class KeptTurn:
    """The turn of a claim that is over, kept for a short time for the next claim of the same owner."""

    claim_id: str
    owner: str
    ends: float


class Ledger:
    """The claims of one client's session, from any thread."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self.trying: set[str] = set()
        """Claims for which nodes are being asked at this moment."""
        self.turns = ClaimTurns()
        """By lock: which of this client's waiters asks the nodes, and which wait behind it."""
        self.begin("")

    def begin(self, session: str) -> list[str]:
        """Start anew, with a new session, or with none. Returns the claims that waited, to be woken."""
        with self._lock:
            self._begin(session)
        return self.turns.end_all()

    def _begin(self, session: str) -> None:
        self.session = session
        self._held: dict[str, str] = {}
        """By claim id: the lock of a grant that a majority has confirmed."""
        self._locks: dict[str, tuple[str, float]] = {}
        """By lock: the claim that holds it as far as is known here, and when its `max_hold` is over."""
        self.kept: dict[str, KeptTurn] = {}
        """By lock: the turn of a claim that is over, while its owner comes again."""
        self._asked: set[str] = set()
        """Claims that were sent to the nodes, until a majority has confirmed that they are given back."""
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

    def hold(self, session: str, claim_id: str, lock: str, proof: float, ends: float = inf) -> bool:
        """Keep a grant that was confirmed by requests sent at `proof` or later, and that ends by itself then.

        False if a heartbeat has begun since: its answer moves the deadline of everything that is
        held, and this one was not in it. False too if its session has ended while the nodes were asked:
        nobody would give it back, and the heartbeats of the next session would keep it for ever.
        """
        with self._lock:
            if self.session != session or self._beat_began > proof:
                return False
            self._held[claim_id] = lock
            self._locks[lock] = claim_id, ends
            self._pauses.pop(claim_id, None)
            return True

    def holds(self, claim_id: str) -> bool:
        """Whether it is held, as far as anybody here knows."""
        return claim_id in self._held

    def holds_lock(self, lock: str, now: float) -> bool:
        """Whether this client holds a lock, as far as is known here: then the nodes would only say the same."""
        return now < self._locks.get(lock, ("", 0.0))[1]

    def lost(self, claim_id: str) -> None:
        """The nodes say that it is gone. The client gives it back, as soon as its callbacks have returned."""
        with self._lock:
            self._free(claim_id)

    def _free(self, claim_id: str) -> None:
        lock = self._held.get(claim_id)
        if lock is not None and self._locks.get(lock, ("", 0.0))[0] == claim_id:
            del self._locks[lock]

    def ask(self, claim_id: str) -> None:
        """It is about to be sent to the nodes."""
        self._asked.add(claim_id)

    def asked(self, claim_id: str) -> bool:
        """Whether nodes may have something of it."""
        return claim_id in self._asked

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
            self._asked.discard(claim_id)

    def spoilt(self, claim_id: str) -> bool:
        """Whether it must not be tried again."""
        return claim_id in self._spoilt

    def forget(self, claim_id: str, for_good: bool) -> None:
        """It is given back: for good, or until it is tried again. A waiter's pauses grow from try to try."""
        with self._lock:
            self._free(claim_id)
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
