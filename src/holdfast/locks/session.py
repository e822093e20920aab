"""The client's side of a session: how long it is good for, and what is held under it."""

from __future__ import annotations

import itertools
from math import inf
from typing import TYPE_CHECKING

from holdfast.core import deadline as deadlines
from holdfast.model import Claim
from holdfast.runtime.calls import new_lock

if TYPE_CHECKING:
    from holdfast.locks.hold import Hold


class Session:
    """One proof of life. Its deadline is moved by confirmed heartbeats only, and counts from their sending."""

    __slots__ = (
        "_learned", "_sent", "deadline", "holds", "id", "in_danger", "lock", "mortal", "named", "numbers", "over",
        "ttl",
    )  # fmt: skip

    def __init__(self, id_: str, ttl: float, sent: float) -> None:
        self.id, self.ttl, self.deadline = id_, ttl, deadlines.deadline(sent, ttl)
        self._sent = sent
        """When the last request that the engine confirmed was sent."""
        self._learned = sent
        """When the engine granted the present ttl."""
        self.over: str | None = None
        """Why it has ended, once it has."""
        self.in_danger = False
        self.holds: dict[str, Hold] = {}
        self.mortal: dict[str, Hold] = {}
        """Holds that end by themselves."""
        self.named: dict[tuple[str, str, str], list[Hold]] = {}
        """Holds by owner, kind and name: with thousands of them, looking for one must not look at all."""
        self.lock = new_lock()
        self.numbers = itertools.count(1)
        """Of its claims, whose ids are chosen before anything is sent."""

    def confirm(self, sent: float, ttl: float, now: float) -> None:
        """Move the deadline: the engine confirmed a request that was sent at `sent`, and grants `ttl` from then on.

        A ttl that is shorter than before counts at once, also when the deadline moves back by it. A longer one counts
        only for a request that was sent after the shorter one was known: replies may be read in another order.
        """
        with self.lock:
            if ttl < self.ttl or (ttl > self.ttl and sent >= self._learned):
                self.ttl, self._learned = ttl, now
            self._sent = max(self._sent, sent)
            if self.over is None:
                self.deadline = deadlines.deadline(self._sent, self.ttl)

    def shorten(self, sent: float, ttl: float, now: float) -> None:
        """Move the deadline back: since a request that was sent at `sent`, the engine grants only `ttl`."""
        with self.lock:
            if ttl < self.ttl:
                self.ttl, self._learned = ttl, now
            self.deadline = min(self.deadline, deadlines.deadline(sent, self.ttl))

    def add(self, hold: Hold) -> bool:
        """Keep a new hold, unless the session has ended meanwhile."""
        with self.lock:
            if self.over is not None:
                return False
            id_ = hold.claim.id
            self.holds[id_] = hold
            self.named.setdefault(hold.key, []).append(hold)
            if hold.ends != inf:
                self.mortal[id_] = hold
            return True

    def has(self, hold: Hold) -> bool:
        """Whether it is held as far as this client knows, and not being given back."""
        return self.holds.get(hold.claim.id) is hold and not hold.released and not hold.withdrawn

    def drop(self, hold: Hold) -> None:
        """Forget a hold that was released or lost."""
        self.forget(hold.claim.id)

    def forget(self, claim_id: str) -> None:
        """Keep nothing under this claim."""
        with self.lock:
            hold = self.holds.pop(claim_id, None)
            if self.mortal:
                self.mortal.pop(claim_id, None)
            if hold is not None:
                # An interrupt can have come between the two, so it need not be in both.
                there = self.named.get(hold.key)
                if there is not None and hold in there:
                    if len(there) > 1:
                        there.remove(hold)
                    else:
                        del self.named[hold.key]

    def end(self, reason: str, now: float) -> list[Hold]:
        """End the session, and give back what was held under it. None of that is valid from `now` on."""
        with self.lock:
            # First, because an interrupt may come before the caller has marked each hold. A session that is not over
            # is ended again, so its deadline moves before that.
            self.deadline = min(self.deadline, now)
            self.over = reason
            holds = list(self.holds.values())
            self.holds, self.mortal, self.named = {}, {}, {}
            return holds

    def find(self, claim: Claim) -> Hold | None:
        """What the owner of this claim holds on exactly its name, an exclusive hold first."""
        key = (claim.owner, claim.kind, claim.name)
        if key not in self.named:
            return None
        with self.lock:
            there = [hold for hold in self.named.get(key, ()) if not hold.released]
        return min(there, key=lambda hold: hold.claim.mode != "exclusive", default=None)
