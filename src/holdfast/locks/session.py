"""The client's side of a session: how long it is good for, and what is held under it."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.locks.hold import Hold


class Session:
    """One proof of life. Its deadline is moved by confirmed heartbeats only, and counts from their sending."""

    __slots__ = ("_numbers", "deadline", "holds", "id", "in_danger", "lock", "mortal", "over", "ttl")

    def __init__(self, id_: str, ttl: float, deadline: float) -> None:
        self.id, self.ttl, self.deadline = id_, ttl, deadline
        self.over: str | None = None
        """Why it has ended, once it has."""
        self.in_danger = False
        self.holds: dict[str, Hold] = {}
        self.mortal: dict[str, Hold] = {}
        """Holds that end by themselves."""
        self.lock = threading.Lock()
        self._numbers = itertools.count(1)

    def claim_id(self) -> str:
        """A new claim id, chosen before anything is sent."""
        return f"{self.id}-{next(self._numbers)}"

    def add(self, hold: Hold) -> bool:
        """Keep a new hold, unless the session has ended meanwhile."""
        with self.lock:
            if self.over is not None:
                return False
            self.holds[hold.claim.id] = hold
            if hold.mortal:
                self.mortal[hold.claim.id] = hold
            return True

    def drop(self, hold: Hold) -> None:
        """Forget a hold that was released or lost."""
        with self.lock:
            self.holds.pop(hold.claim.id, None)
            self.mortal.pop(hold.claim.id, None)

    def end(self, reason: str) -> list[Hold]:
        """End the session, and give back what was held under it."""
        with self.lock:
            self.over = reason
            holds = list(self.holds.values())
            self.holds, self.mortal = {}, {}
            return holds

    def find(self, owner: str, kind: str, name: str) -> Hold | None:
        """What this owner holds on exactly this name, an exclusive hold first."""
        found = None
        for hold in self.mine(owner):
            if hold.claim.kind == kind and hold.claim.name == name:
                if hold.claim.mode == "exclusive":
                    return hold
                found = hold
        return found

    def mine(self, owner: str) -> list[Hold]:
        """Everything that this owner holds and has not released."""
        with self.lock:
            return [hold for hold in self.holds.values() if hold.claim.owner == owner and not hold.released]
