"""The waiters of one client: which of them asks the nodes, and when it tries again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.backoff import full_jitter
from holdfast.engines.redlock.ledger import KeptTurn
from holdfast.model import Claim, Party, Place
from holdfast.runtime.io import Io

if TYPE_CHECKING:
    from holdfast.engines.redlock.engine import RedlockEngine

FIRST_PAUSE, LAST_PAUSE = 0.01, 0.3
"""Between two tries of a waiter, with full jitter."""
KEPT = 0.3
"""For how long the turn of a claim that was given up is kept. Its owner comes again at once, unless interrupted."""


class Waiters:
    """Redlock has no queue, so a waiter tries again and again. Of one client's waiters on a lock only the first does.

    The state is in the engine's ledger and bell, which threads and tasks share.
    """

    def __init__(self, engine: RedlockEngine, io: Io) -> None:
        self._engine, self._io = engine, io

    def any(self, lock: str) -> bool:
        """Whether a claim of this client waits for a lock."""
        return bool(self._engine.ledger.turns.count(lock))

    def knows(self, claim: Claim, lock: str) -> bool:
        """Whether a claim is one of the waiters."""
        return self._engine.ledger.turns.knows(lock, claim.id)

    def place(self, claim: Claim, lock: str, held: bool) -> Place | None:
        """Where a claim waits; None if it has to ask the nodes. `held`: this client holds the lock, so none has to."""
        if not self._has_turn(claim, lock):
            return Place(1)  # there is no queue in which its client has places
        return self.pause(claim) if held else None

    def _has_turn(self, claim: Claim, lock: str) -> bool:
        ledger = self._engine.ledger
        kept = ledger.kept.get(lock)
        if kept is not None and (kept.owner == claim.owner or kept.ends <= self._io.now()):
            if kept.owner == claim.owner:
                ledger.turns.replace(lock, kept.claim_id, claim.id)
            self._call(ledger.turns.end(lock, kept.claim_id))
            ledger.kept.pop(lock, None)
        admitted = ledger.turns.admit(lock, claim.id)
        if not admitted and kept is not None and ledger.turns.waiting(lock) == claim.id:
            self._engine.bell.try_at(claim.id, kept.ends)
        return admitted

    def pause(self, claim: Claim, blocker: Party | None = None) -> Place:
        """The first one tries again after a while."""
        pauses = full_jitter(FIRST_PAUSE, LAST_PAUSE, self._io.uniform)
        self._engine.bell.try_at(claim.id, self._io.now() + self._engine.ledger.pause(claim.id, pauses))
        return Place(1, blocker)

    def keep_turn(self, claim: Claim, lock: str) -> None:
        """The first one was given up. Its owner comes again with another claim, and keeps its turn."""
        ledger, ends = self._engine.ledger, self._io.now() + KEPT
        ledger.kept[lock] = KeptTurn(claim.id, claim.owner, ends)
        following = ledger.turns.waiting(lock)
        if following is not None:
            self._engine.bell.try_at(following, ends)

    def end(self, claim: Claim, lock: str) -> None:
        """A claim waits no longer: the next one has to ask the nodes."""
        self._call(self._engine.ledger.turns.end(lock, claim.id))

    def _call(self, called: list[str]) -> None:
        for claim_id in called:
            self._engine.bell.try_at(claim_id, self._io.now() + self._io.uniform(0.0, FIRST_PAUSE))

    def freed(self, lock: str) -> None:
        """This client gave a lock back. The first waiter tries as soon as one of all would that try independently.

        It does not try at once: the waiters of other clients would hardly ever come before it.
        """
        turns = self._engine.ledger.turns
        first, count = turns.sent(lock), turns.count(lock)
        if first is not None and count:
            self._engine.bell.try_at(first, self._io.now() + self._io.uniform(0.0, LAST_PAUSE / count))
