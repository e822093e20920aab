"""A lock that many of one client want: they ask for their places in line together."""

from __future__ import annotations

from typing import Any

from holdfast.engines.postgres.sockets import Turns
from holdfast.model import Claim
from holdfast.runtime import clock

COURTESY = 0.001
"""For how many seconds whoever has passed a lock on lets the next one go first, before it asks for a place again.

The next one may give it back at once. That would have to wait until the place is taken, and everybody in line with it.
"""
LONGEST = 16
"""How many times as long at most, one for every four in line: there is time until its turn comes, and others come
meanwhile who ask with it. A place that is taken alone costs a crowded lock nearly as much as passing it on."""

MOST_LEAVING = 1_000
"""Claims that leave a queue in one message."""


class Seat:
    """One who wants a place, or gives it up."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.found: list[Any] | None = None
        """What the server said: nothing, if its place is not a simple one; None while it was not asked."""
        self.asked = False
        """Whether the server may have been asked."""
        self.over = False
        """Whether nobody waits for it any more."""


def alike(claim: Claim) -> tuple[object, ...]:
    """What those who ask together have in common."""
    return claim.session, claim.mode, claim.max_hold


class Crowd:
    """Those of one client who want a place in the same line."""

    def __init__(self, door: Turns, exit_door: Turns) -> None:
        self.door, self.exit_door = door, exit_door
        """One of them asks at a time: of those that come, and of those that go."""
        self.seats: list[Seat] = []
        self.leaving: list[Seat] = []
        self.passed_on = 0.0
        """When the lock was last passed on from here."""
        self.length = 0
        """How many stood in line when somebody last came."""

    def courtesy(self) -> float:
        """How long to wait before asking, in seconds."""
        return self.passed_on + COURTESY * min(LONGEST, max(1, self.length // 4)) - clock.now()

    def take(self, mine: Seat) -> list[Seat]:
        """Who wants such a place now, in the order in which they came, no owner twice.

        Called by whoever is at the door. One that comes at this very moment may be missed, and asks by itself.
        """
        seats, self.seats = self.seats, []
        found: dict[str, Seat] = {}
        for seat in (*seats, mine):
            if alike(seat.claim) == alike(mine.claim) and not seat.over:
                found.setdefault(seat.claim.owner, seat)
        return list(found.values())

    def take_leaving(self) -> list[Seat]:
        """Those that leave the queue now, in the order in which they came."""
        waiting = [seat for seat in self.leaving if not seat.over]
        self.leaving = waiting[MOST_LEAVING:]
        return waiting[:MOST_LEAVING]
