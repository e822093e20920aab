"""What a client knows that it has claimed, so that a heartbeat can name it."""

from __future__ import annotations

from holdfast.model import Claim, Granted
from holdfast.runtime.calls import new_lock


class Ledger:
    """The claims of one client's session, from any thread."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self.begin()

    def begin(self) -> None:
        """Start anew, with a new session."""
        self._locks: dict[str, str | None] = {}
        """By claim id, from before it is sent: its lock, once Redis has said that it is there."""
        self._tokens: dict[str, int] = {}
        """By claim id: the token of a claim that is granted, as far as this client has heard."""
        self._counts: dict[str, int] = {}
        """By owner: how many claims it has."""
        self._waiting: set[str] = set()
        self._handed: dict[str, Granted] = {}
        """By claim id: a grant that somebody else's release made, as it was published."""
        self.twice: set[str] = set()
        """Claims that were sent twice, on two connections: the first one may arrive when the claim is over."""

    def sending(self, claim: Claim) -> bool:
        """A claim is about to be sent; whether its owner has another one."""
        owner = claim.owner
        with self._lock:
            # Without a call: a signal handler whose claims have the same owner does not come in between.
            others = self._counts[owner] if owner in self._counts else 0  # noqa: SIM401
            if claim.id in self._locks:
                return others > 1
            self._locks[claim.id] = None
            self._counts[owner] = others + 1
        return others > 0

    def waits(self, claim_id: str, lock: str) -> None:
        """It stands in line."""
        with self._lock:
            self._locks[claim_id] = lock
            self._waiting.add(claim_id)

    def holds(self, claim_id: str, lock: str, token: int) -> None:
        """It is granted."""
        # One step of a dictionary each: nothing has to be locked.
        self._tokens[claim_id] = token
        self._locks[claim_id] = lock
        if self._waiting:
            self._waiting.discard(claim_id)

    def forget(self, claim: Claim) -> str | None:
        """It is gone, or will be: nobody has to keep it alive any more. Its lock, if it was known to be there."""
        with self._lock:
            if self._waiting:
                self._waiting.discard(claim.id)
            if self._handed:
                self._handed.pop(claim.id, None)
            self._tokens.pop(claim.id, None)
            if claim.id not in self._locks:
                return None
            # There is none, if the claim is an earlier session's.
            owner = claim.owner
            if owner in self._counts:
                self._counts[owner] -= 1
                if not self._counts[owner]:
                    del self._counts[owner]
            return self._locks.pop(claim.id)

    def not_sent(self, claim: Claim) -> None:
        """It never came there, and nobody withdraws it; unless it is there from an earlier try."""
        if not self.still_there(claim.id):
            self.forget(claim)

    def hand(self, claim_id: str, granted: Granted) -> None:
        """A release has made this claim the holder."""
        with self._lock:
            if claim_id in self._locks:
                self._handed[claim_id] = granted

    def handed(self, claim_id: str) -> Granted | None:
        """The grant that was made for this claim, once; None if nothing was heard of it."""
        with self._lock:
            return self._handed.pop(claim_id, None)

    def known(self) -> int:
        """How many claims were sent and not given back since."""
        return len(self._locks)

    def knows(self, claim_id: str) -> bool:
        """Whether it was sent and not given back since."""
        return claim_id in self._locks

    def token(self, claim_id: str) -> str:
        """The token of its grant as text, empty if this client has not heard of one."""
        return f"{self._tokens.get(claim_id, '')}"

    def confirmed(self) -> list[tuple[str, str, str]]:
        """Every claim that ought to be there: its id, its lock, and its token, or nothing while it waits."""
        return [
            (claim_id, lock, self.token(claim_id)) for claim_id, lock in self._locks.copy().items() if lock is not None
        ]

    def still_there(self, claim_id: str) -> bool:
        """Whether it ought to be there still."""
        return self._locks.get(claim_id) is not None

    def waiting(self) -> list[str]:
        """The claims that may stand in line: Redis has said so, or its answer is not known here yet."""
        with self._lock:
            return [*self._waiting, *(claim_id for claim_id, lock in self._locks.copy().items() if lock is None)]
