"""What a client knows that it has claimed, so that a heartbeat can name it."""

from __future__ import annotations

import threading

from holdfast.model import Claim, Granted


class Ledger:
    """The claims of one client's session, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.begin()

    def begin(self) -> None:
        """Start anew, with a new session."""
        self._owners: dict[str, str] = {}
        """By claim id, from before it is sent."""
        self._counts: dict[str, int] = {}
        self._confirmed: dict[str, str] = {}
        """By claim id: the lock of a claim that Redis has said to be there."""
        self._waiting: set[str] = set()
        self._handed: dict[str, Granted] = {}
        """By claim id: a grant that somebody else's release made, as it was published."""

    def sending(self, claim: Claim) -> bool:
        """A claim is about to be sent; whether its owner has another one."""
        id_, owner = claim.id, claim.owner
        with self._lock:
            if id_ in self._owners:
                return self._counts[owner] > 1
            self._owners[id_] = owner
            count = self._counts.get(owner, 0)
            self._counts[owner] = count + 1
        return count > 0

    def waits(self, claim_id: str, lock: str) -> None:
        """It stands in line."""
        with self._lock:
            self._confirmed[claim_id] = lock
            self._waiting.add(claim_id)

    def holds(self, claim_id: str, lock: str) -> None:
        """It is granted."""
        # One step of a dictionary each: nothing has to be locked.
        self._confirmed[claim_id] = lock
        if self._waiting:
            self._waiting.discard(claim_id)

    def forget(self, claim_id: str) -> None:
        """It is gone, or will be: nobody has to keep it alive any more."""
        self._confirmed.pop(claim_id, None)
        with self._lock:
            if self._waiting:
                self._waiting.discard(claim_id)
            if self._handed:
                self._handed.pop(claim_id, None)
            owner = self._owners.pop(claim_id, None)
            if owner is not None:
                count = self._counts[owner] - 1
                if count:
                    self._counts[owner] = count
                else:
                    del self._counts[owner]

    def hand(self, claim_id: str, granted: Granted) -> None:
        """A release has made this claim the holder."""
        with self._lock:
            if claim_id in self._owners:
                self._handed[claim_id] = granted

    def handed(self, claim_id: str) -> Granted | None:
        """The grant that was made for this claim, once; None if nothing was heard of it."""
        with self._lock:
            return self._handed.pop(claim_id, None)

    def known(self) -> int:
        """How many claims were sent and not given back since."""
        return len(self._owners)

    def knows(self, claim_id: str) -> bool:
        """Whether it was sent and not given back since."""
        return claim_id in self._owners

    def confirmed(self) -> dict[str, str]:
        """Every claim that ought to be there, with its lock."""
        with self._lock:
            return self._confirmed.copy()

    def still_there(self, claim_id: str) -> bool:
        """Whether it ought to be there still."""
        return claim_id in self._confirmed

    def waiting(self) -> list[str]:
        """The claims that stand in line, as far as anybody here knows."""
        with self._lock:
            return list(self._waiting)
