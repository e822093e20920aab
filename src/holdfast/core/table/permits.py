"""Semaphores: at most `limit` grants at once, each on a slot of its own.

A slot is what a fence can tell apart: with several holders one number cannot fence, so each
permit is fenced by name and slot. The claims stand in one line, first come first served.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core.table import admission
from holdfast.core.table import questions as ask
from holdfast.core.table.commands import Deadlocked, PassOn, TooEntangled, WrongLimit
from holdfast.core.table.rows import Row
from holdfast.core.table.step import Asking, Step
from holdfast.model import MAX_TOKEN, Claim, Granted, Place, Refused

PermitReply = Granted | Place | Refused | Deadlocked | WrongLimit | TooEntangled


def taken(holders: ask.Holders) -> ask.Taken:
    """What the holders of a semaphore have, however a store tells of them."""
    return holders if isinstance(holders, ask.Taken) else ask.Taken.by(holders)


def free_slots(slots: int, limit: int) -> Iterator[int]:
    """The permits that nobody holds, the lowest first."""
    while (slot := (~slots & (slots + 1)).bit_length() - 1) < limit:
        yield slot
        slots |= 1 << slot


def enter(step: Step, claim: Claim, bucket: int, first: Row | None, holders: ask.Holders) -> Asking[PermitReply]:
    """Take a free permit if nobody stands in line for it; `first` is the head of the line."""
    if first is not None and first.claim.limit != claim.limit:
        return WrongLimit(first.claim.limit)
    step.check_numbers(bucket)
    held = taken(holders)
    slot = next(free_slots(held.slots, claim.limit), None)
    if first is not None and slot is not None:
        # Holders have died and nobody has passed their permits on yet. There may be enough for all.
        yield from pass_on(step, claim.kind, claim.name)
        held = taken((yield ask.Permits(claim.kind, claim.name)))
        first = yield ask.NextWaiting(claim.kind, claim.name, -1)
        slot = next(free_slots(held.slots, claim.limit), None)
    blocker = held.first or first
    if blocker is not None and blocker.claim.limit != claim.limit:
        return WrongLimit(blocker.claim.limit)
    if blocker is None or (first is None and slot is not None):
        row = admission.take(step, claim, bucket, slot)
        yield from step.tell("granted", row)
        return Granted(row.order, slot, claim.max_hold)
    return (yield from admission.queue(step, claim, bucket, blocker))


def pass_on(step: Step, kind: str, name: str) -> Asking[None]:
    """Give free permits to those in line, in order."""
    after, free = -1, None
    while True:
        if step.is_over:
            step.rest.append(PassOn(kind, name, counted=True))
            return
        row: Row | None = yield ask.NextWaiting(kind, name, after)
        if row is None:
            return
        if free is None:
            free = free_slots(taken((yield ask.Permits(kind, name))).slots, row.claim.limit)
        slot = next(free, None)
        if slot is None:
            return
        bucket = step.bucket(name)
        if (yield from step.read_counter(bucket)) >= MAX_TOKEN:
            return
        yield from step.tell("granted", step.grant(row, step.number(bucket), slot))
        after = row.order
