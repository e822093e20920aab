"""How much of a limited hold is left when another client adopts it: a lease tells, on the cluster's clock.

The clocks of two clients have nothing in common, and etcd shows none of its own. But it tells how much is left of a
lease. So a lease begins when a hold with `max_hold` is first handed over, and no client renews it. It has no keys, and
ends by itself.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.wire import LEASE_GRANT, LEASE_TIME_TO_LIVE, Request

if TYPE_CHECKING:
    from holdfast.engines.etcd.ledger import Entry
    from holdfast.engines.etcd.outcome import VerbCall
    from holdfast.engines.etcd.session import Known

RESOLUTION = 1.0
"""etcd tells what is left of a lease in whole seconds, rounded down."""


class HoldClock(NamedTuple):
    """How long a hold had left when this lease began. Later hand-overs of the same hold go on with it."""

    lease: int
    left: float

    async def left_now(self, known: Known, verb: VerbCall) -> float:
        """How long it has left now: at most a second too much, never too little; 0 if its time is over.

        A new leader starts all leases anew: then the time before the election is not counted.
        """
        asked = message("LeaseTimeToLiveRequest")(ID=self.lease)
        reply = (await known.call(Request(LEASE_TIME_TO_LIVE, asked, changes=False), verb)).message
        if reply.TTL < 0:
            return 0.0
        passed: float = reply.grantedTTL - reply.TTL - RESOLUTION
        return max(0.0, self.left - max(0.0, passed))


async def clock_of(known: Known, entry: Entry, verb: VerbCall) -> HoldClock | None:
    """The clock of a hold, which begins now if there is none; None if the hold is without limit."""
    if entry.hold_clock is None and entry.hold_left is not None:
        # It ends later than the hold, so one that is not there any more is over.
        asked = message("LeaseGrantRequest")(TTL=ceil(entry.hold_left + 2 * RESOLUTION))
        lease = (await known.call(Request(LEASE_GRANT, asked, changes=False), verb)).message.ID
        entry.hold_clock = HoldClock(lease, entry.hold_left)
    return entry.hold_clock
