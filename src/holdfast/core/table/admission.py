"""What becomes of a newcomer: it takes the lock, or a place in line, or is refused."""

from __future__ import annotations

from holdfast.core.table import deadlocks
from holdfast.core.table import questions as ask
from holdfast.core.table.changes import PutRow
from holdfast.core.table.commands import Deadlocked, TooEntangled
from holdfast.core.table.rows import Row, Session, party
from holdfast.core.table.step import Asking, Step
from holdfast.model import Claim, Link, Place, Refused

MOST_DETAIL = 1_000
"""Characters in the detail of an event. Every watch gets one: all of a long cycle is for whoever closed it."""


def story(cycle: tuple[Link, ...]) -> str:
    """Who waits for whom, as far as there is room for it."""
    text = "; ".join(map(str, cycle[: MOST_DETAIL // 10]))
    return text if len(text) <= MOST_DETAIL else text[: MOST_DETAIL - 1] + "…"


def take(step: Step, claim: Claim, bucket: int, slot: int | None) -> Row:
    """Grant a newcomer: its place in line and its token are one number. Whoever watches is still to be told."""
    number = step.number(bucket)
    dies_at = None if claim.max_hold is None else step.now + claim.max_hold
    row = Row(claim, number, step.now, number, slot, dies_at)
    step.changes.append(PutRow(row))
    return row


def queue(step: Step, claim: Claim, bucket: int, blocker: Row) -> Asking[Place | Refused | Deadlocked | TooEntangled]:
    """Give a newcomer a place in line, unless it does not wait or would wait for ever."""
    sessions: dict[str, Session] = yield ask.Sessions((blocker.claim.session,))
    who = party(blocker, sessions.get(blocker.claim.session), step.now, step.wall)
    if not claim.waits:
        return Refused(who)
    row = Row(claim, step.last[bucket] + 1, step.now)
    cycle = yield from deadlocks.search(step, row)
    if isinstance(cycle, TooEntangled):
        return cycle
    if cycle:
        yield from step.tell("deadlock", row, story(cycle))
        return Deadlocked(cycle)
    step.number(bucket)
    position: int = yield ask.Position(claim.kind, claim.name, row.order)
    step.changes.append(PutRow(row))
    yield from step.tell("queued", row)
    return Place(position + 1, who)
