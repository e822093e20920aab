"""Entering a line, leaving it, and passing the lock on.

A claim is granted exactly when no live claim that conflicts with it came before it. There is
no other rule: queues, readers and writers, and subtrees all follow from it.
"""

from __future__ import annotations

from holdfast.core import names
from holdfast.core.table import admission, permits
from holdfast.core.table import questions as ask
from holdfast.core.table.changes import DropRow, DropTombstone, PutRow, PutTombstone
from holdfast.core.table.commands import (
    Deadlocked,
    Done,
    Enter,
    Leave,
    Look,
    PassOn,
    PassOnBelow,
    Release,
    SessionOver,
    TooEntangled,
    WrongLimit,
)
from holdfast.core.table.rows import WITHDRAWN, Row, Session, Tombstone, party
from holdfast.core.table.step import Asking, Step
from holdfast.model import MAX_TOKEN, Claim, Gone, Granted, Place, Refused

EnterReply = Granted | Place | Refused | Gone | SessionOver | Deadlocked | WrongLimit | TooEntangled

DONE = Done()
"""The answer to most releases: made once, because nobody changes a reply."""

UNKNOWN_CLAIM = "the engine does not know it"
OVERHELD = "it was held longer than max_hold"
RELEASED_BEFORE = "it was released before"


def granted(step: Step, row: Row) -> Granted:
    """The answer that a grant gets, now or when it asks again."""
    assert row.token is not None
    return Granted(row.token, row.slot, None if row.dies_at is None else row.dies_at - step.now)


def held(step: Step, row: Row, tombstone: Tombstone | None) -> Granted | Gone:
    """The answer to a grant that asks again: it may have outlived its own time, or the operator's patience."""
    if row.dies_at is not None and row.dies_at <= step.now:
        return Gone(OVERHELD if tombstone is None else tombstone.reason)
    return granted(step, row)


def enter(step: Step, command: Enter) -> Asking[EnterReply]:
    """Grant the claim, or give it a place in line, or say why not."""
    claim = command.claim
    bucket = step.bucket(claim.name)
    scene: ask.SceneAnswer = yield ask.Scene(claim, bucket)
    session, row, tombstone, last, blocker, holders, step.watched = scene
    step.last[bucket] = last
    if session is None or session.expires_at <= step.now:
        return SessionOver()
    if row is not None:
        return (yield from again(step, row, tombstone))
    if tombstone is not None:
        return Gone(tombstone.reason)
    if claim.limit:
        return (yield from permits.enter(step, claim, bucket, blocker, holders))
    if claim.reentrant:
        cover: Row | None = yield ask.Held(claim)
        if cover is not None and not cover.claim.limit:
            return (yield from reenter(step, claim, cover))
    if blocker is not None and blocker.claim.limit:
        return WrongLimit(blocker.claim.limit)
    step.check_numbers(bucket)
    if blocker is None:
        row = admission.take(step, claim, bucket, None)
        if step.watched:
            yield from step.tell("granted", row)
        return Granted(row.order, None, claim.max_hold)
    return (yield from admission.queue(step, claim, bucket, blocker))


def reenter(step: Step, claim: Claim, held: Row) -> Asking[Granted]:
    """Grant a claim of an owner that holds the lock already: the same token, the same place."""
    dies_at = None if claim.max_hold is None else step.now + claim.max_hold
    if held.dies_at is not None:
        dies_at = held.dies_at if dies_at is None else min(dies_at, held.dies_at)
    row = Row(claim, held.order, step.now, held.token, held.slot, dies_at)
    step.changes.append(PutRow(row))
    yield from step.tell("granted", row)
    return granted(step, row)


def again(step: Step, row: Row, tombstone: Tombstone | None) -> Asking[Granted | Place | Gone | SessionOver]:
    """Answer a claim that is here already; grant it if all that was before it has died meanwhile."""
    if row.token is not None:
        return held(step, row, tombstone)
    yield from pass_on(step, row.claim.kind, row.claim.name, bool(row.claim.limit))
    return (yield from standing(step, row.claim))


def look(step: Step, command: Look) -> Asking[Granted | Place | Gone | SessionOver]:
    """Say how a claim stands, without changing anything."""
    return (yield from standing(step, command.claim))


def standing(step: Step, claim: Claim) -> Asking[Granted | Place | Gone | SessionOver]:
    """Granted, in line, or gone."""
    bucket = step.bucket(claim.name)
    found: ask.DepartureAnswer = yield ask.Departure(claim, bucket, stays=True)
    session, row, tombstone, _, _, _ = found
    if not step.alive(session):
        return SessionOver()
    if row is None:
        return Gone(tombstone.reason if tombstone else UNKNOWN_CLAIM)
    if row.token is not None:
        return held(step, row, tombstone)
    ahead: int = yield ask.Position(claim.kind, claim.name, row.order)
    blocker: Row | None
    if claim.limit:
        blocker = permits.taken((yield ask.Permits(claim.kind, claim.name))).first
    else:
        blocker = yield ask.Blocker(claim, row.order)
    if blocker is None:
        return Place(ahead + 1)
    sessions: dict[str, Session] = yield ask.Sessions((blocker.claim.session,))
    return Place(ahead + 1, party(blocker, sessions.get(blocker.claim.session), step.now, step.wall))


def release(step: Step, command: Release) -> Asking[Done | Gone]:
    """Give a grant back. One that is no longer held changes nothing and is told so."""
    claim = command.claim
    bucket = step.bucket(claim.name)
    found: ask.DepartureAnswer = yield ask.Departure(claim, bucket, False, step.bounds.names)
    session, row, tombstone, last, waiting, step.watched = found
    step.last[bucket] = last
    if tombstone is not None:
        if tombstone.reason != WITHDRAWN:
            step.changes.append(DropTombstone(claim.session, claim.id))
        if row is not None:
            # Broken, but not yet over: the holder has heard of it and goes.
            yield from depart(step, row, waiting)
        return Gone(tombstone.reason)
    if not step.alive(session):
        return Gone("its session ran out")
    if row is None or row.token is None:
        return Gone(RELEASED_BEFORE if row is None else "it was never granted")
    if row.dies_at is not None and row.dies_at <= step.now:
        yield from depart(step, row, waiting)
        return Gone(OVERHELD)
    if waiting or step.watched:
        yield from depart(step, row, waiting)
    else:
        step.changes.append(DropRow(row))
    return DONE


def leave(step: Step, command: Leave) -> Asking[Done]:
    """Withdraw a claim, whatever became of it; repeating it is harmless."""
    claim = command.claim
    bucket = step.bucket(claim.name)
    found: ask.DepartureAnswer = yield ask.Departure(claim, bucket, False, step.bounds.names)
    session, row, tombstone, last, waiting, step.watched = found
    step.last[bucket] = last
    if row is not None:
        yield from depart(step, row, waiting)
    if command.unanswered and step.alive(session):
        # Its enter may still arrive. It has to find this.
        step.changes.append(PutTombstone(Tombstone(claim.id, claim.session, WITHDRAWN)))
    elif tombstone is not None and tombstone.reason != WITHDRAWN:
        step.changes.append(DropTombstone(claim.session, claim.id))
    return Done()


def depart(step: Step, row: Row, waiting: tuple[str, ...]) -> Asking[None]:
    """Remove a claim and let those behind it go on."""
    step.changes.append(DropRow(row))
    if step.watched:
        yield from step.tell("released", row)
    yield from pass_on_all(step, row.claim, waiting)


def pass_on_all(step: Step, claim: Claim, waiting: tuple[str, ...]) -> Asking[None]:
    """Let the claims on these names go on, which waited for a claim that is gone."""
    leave_rest(step, claim, waiting)
    for name in waiting:
        yield from pass_on(step, claim.kind, name, bool(claim.limit))


def leave_rest(step: Step, claim: Claim, waiting: tuple[str, ...]) -> None:
    """Leave names under a subtree claim that is gone to later steps, if the bounds of this one do not show them all."""
    most = step.bounds.names
    if most is not None and claim.subtree and len(waiting) >= most:
        step.rest.append(PassOnBelow(claim))


def leave_all(step: Step, claim: Claim) -> None:
    """Leave all that waited for a claim that is gone to later steps."""
    step.rest += [PassOn(claim.kind, name, bool(claim.limit)) for name in (claim.name, *names.ancestors(claim.name))]
    if claim.subtree:
        step.rest.append(PassOnBelow(claim))


def pass_on_rest(step: Step, command: PassOn) -> Asking[Done]:
    """Go on where an earlier step ended on this name."""
    step.watched = yield ask.Watched()
    yield from pass_on(step, command.kind, command.name, command.counted)
    return DONE


def pass_on_below(step: Step, command: PassOnBelow) -> Asking[Done]:
    """Go on with the names under a subtree claim that is gone."""
    step.watched = yield ask.Watched()
    claim = command.claim
    found: ask.BelowAnswer = yield ask.AffectedBelow(claim, command.after, step.bounds.names or 256)
    if found.next is not None:
        step.rest.append(PassOnBelow(claim, found.next))
    for name in found.names:
        yield from pass_on(step, claim.kind, name, bool(claim.limit))
    return DONE


def pass_on(step: Step, kind: str, name: str, counted: bool) -> Asking[None]:
    """Grant whoever is next on this name: one writer, the leading run of readers, or free permits."""
    if counted:
        yield from permits.pass_on(step, kind, name)
        return
    after, plain = -1, False
    while True:
        if step.is_over:
            step.rest.append(PassOn(kind, name, counted))
            return
        row: Row | None = yield ask.NextWaiting(kind, name, after, plain)
        if row is None:
            return
        if row.claim.limit:
            yield from permits.pass_on(step, kind, name)
            return
        blocker: Row | None = yield ask.Blocker(row.claim, row.order)
        if blocker is not None:
            if row.exclusive or not row.claim.subtree:
                # Whatever stands behind it on this name waits for it, or for what it waits for.
                return
            # A reader of the whole subtree may wait for something below that does not concern a plain reader. Other
            # readers of the whole subtree wait for it too.
            after, plain = row.order, True
            continue
        bucket = step.bucket(name)
        if (yield from step.read_counter(bucket)) >= MAX_TOKEN:
            return
        yield from step.tell("granted", step.grant(row, step.number(bucket)))
        if row.exclusive:
            return
        after = row.order
