"""Semaphores: at most `limit` grants at once, each on a slot of its own.

A slot is what a fence can tell apart: with several holders one number cannot fence, so each
permit is fenced by name and slot. The claims stand in one line, first come first served.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from holdfast.core.table import admission
from holdfast.core.table import questions as ask
from holdfast.core.table.commands import Deadlocked, WrongLimit
from holdfast.core.table.rows import Row
from holdfast.core.table.step import Asking, Step
from holdfast.model import Claim, Granted, Place, Refused

PermitReply = Granted | Place | Refused | Deadlocked | WrongLimit


def free_slots(holders: tuple[Row, ...], limit: int) -> Iterator[int]:
    """The permits that nobody holds, the lowest first."""
    taken = {row.slot for row in holders}
    free = (slot for slot in range(limit) if slot not in taken)
    return islice(free, max(0, limit - len(holders)))


def enter(step: Step, claim: Claim, bucket: int, first: Row | None, holders: tuple[Row, ...]) -> Asking[PermitReply]:
    """Take a free permit if nobody stands in line for it; `first` is the head of the line."""
    if first is not None and len(holders) < claim.limit == first.claim.limit:
        # Holders have died and nobody has passed their permits on yet. There may be enough for all.
        yield from pass_on(step, claim.kind, claim.name)
        holders = yield ask.Permits(claim.kind, claim.name)
        first = yield ask.NextWaiting(claim.kind, claim.name, -1)
    blocker = holders[0] if holders else first
    if blocker is not None and blocker.claim.limit != claim.limit:
        return WrongLimit(blocker.claim.limit)
    slot = next(free_slots(holders, claim.limit), None)
    if blocker is None or (first is None and slot is not None):
        row = admission.take(step, claim, bucket, slot)
        yield from step.tell("granted", row)
        return Granted(row.order, slot, claim.max_hold)
    return (yield from admission.queue(step, claim, bucket, blocker))


def pass_on(step: Step, kind: str, name: str) -> Asking[None]:
    """Give free permits to those in line, in order."""
    after, holders = -1, None
    while True:
        row: Row | None = yield ask.NextWaiting(kind, name, after)
        if row is None:
            return
        if holders is None:
            holders = yield ask.Permits(kind, name)
            free = free_slots(holders, row.claim.limit)
        slot = next(free, None)
        if slot is None:
            return
        token = yield from step.count(step.bucket(name))
        yield from step.tell("granted", step.grant(row, token, slot))
        after = row.order
