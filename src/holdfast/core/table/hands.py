"""A grant that changes hands without a release: handed over, or broken by an operator."""

from __future__ import annotations

from holdfast.core.conflicts import conflict
from holdfast.core.table import deadlocks, lines
from holdfast.core.table import questions as ask
from holdfast.core.table.changes import DropRow, PutRow, PutTombstone
from holdfast.core.table.commands import (
    GONE,
    Adopt,
    Break,
    BreakUnderWay,
    Deadlocked,
    Done,
    HandOver,
    Notice,
    SessionOver,
    TooEntangled,
)
from holdfast.core.table.rows import Row, Session, Tombstone
from holdfast.core.table.step import Asking, Step
from holdfast.model import Claim, Gone, Granted, Link

BROKEN = "an operator broke it"
NO_TICKET = "broken"
"""The ticket of a grant that was told to go: no secret has this digest."""
HANDED_OVER = "it was handed over"
IN_LINE = "this claim stands in line: adopt with one of its own"
VOID = "there is nothing to adopt: it was adopted, released or lost before"


def hand_over(step: Step, command: HandOver) -> Asking[Done | Gone]:
    """Remember the ticket. The sender holds on until somebody adopts."""
    found: tuple[Row, Session] | None = yield ask.RowById(command.claim.id)
    if found is None or found[0].token is None:
        return Gone("it is no longer held")
    if found[0].ticket == NO_TICKET:
        return Gone(BROKEN)
    step.changes.append(PutRow(found[0]._replace(ticket=command.ticket)))
    return Done()


def adopt(step: Step, command: Adopt) -> Asking[Granted | Gone | SessionOver | Deadlocked | TooEntangled]:
    """Give the sender's hold to the adopter: the same place and slot, a higher token."""
    claim = command.claim
    scene: ask.SceneAnswer = yield ask.Scene(claim, step.bucket(claim.name))
    session, mine, tombstone, _, _, _, step.watched = scene
    if not step.alive(session):
        return SessionOver()
    if mine is not None:
        return Gone(IN_LINE) if mine.token is None else lines.held(step, mine, tombstone)
    if tombstone is not None:
        return Gone(tombstone.reason)
    found: tuple[Row, Session] | None = yield ask.RowById(command.source)
    if found is not None and found[0].ticket == NO_TICKET:
        return Gone(BROKEN)
    if found is None or not fits(found[0], claim, command.ticket):
        return Gone(VOID)
    old = found[0]
    cycle = yield from closes_cycle(step, old, claim.owner)
    if isinstance(cycle, TooEntangled):
        return cycle
    if cycle:
        return Deadlocked(cycle)
    bucket = step.bucket(claim.name)
    yield from step.read_counter(bucket)
    step.check_numbers(bucket)
    token = step.number(bucket)
    on_name: tuple[Row, ...] = yield ask.OnName(claim.kind, claim.name, True, old.order)
    # Whatever the sender entered again has the same order: what the adopter excludes goes with the grant.
    excluded = [row for row in on_name if row.order == old.order and row.id != old.id and conflict(row.claim, claim)]
    for row in (old, *excluded):
        step.changes.append(DropRow(row))
        step.changes.append(PutTombstone(Tombstone(row.id, row.claim.session, HANDED_OVER)))
        step.notices.append(Notice(row.claim.session, row.id, GONE))
    new = old._replace(claim=claim, token=token, since=step.now, dies_at=end(step, old, claim), ticket="")
    step.changes.append(PutRow(new))
    yield from step.tell("granted", new, HANDED_OVER)
    for row in excluded:
        # A writer that handed its reading on is gone: the readers behind it wait for nobody.
        affected: tuple[str, ...] = yield ask.Affected(row.claim, step.bounds.names)
        yield from lines.pass_on_all(step, row.claim, affected)
    return lines.granted(step, new)


def end(step: Step, row: Row, claim: Claim) -> float | None:
    """When an adopted hold ends: with the first one's time, or earlier if the adopter asks for less."""
    if claim.max_hold is None:
        return row.dies_at
    asked = step.now + claim.max_hold
    return asked if row.dies_at is None else min(row.dies_at, asked)


def fits(row: Row, claim: Claim, ticket: str) -> bool:
    """Whether the ticket is this grant's, and the adopter asks for just what was granted."""
    source = row.claim
    return (
        row.token is not None
        and bool(ticket)
        and row.ticket == ticket
        and (source.kind, source.name, source.mode, source.subtree, source.limit)
        == (claim.kind, claim.name, claim.mode, claim.subtree, claim.limit)
    )


def closes_cycle(step: Step, row: Row, owner: str) -> Asking[tuple[Link, ...] | TooEntangled]:
    """Whether an owner that waits elsewhere would, with this grant, wait for itself."""
    waiting: tuple[Row, ...] | None = yield ask.WaitingOf((owner,), step.bounds.search)
    if waiting is None:
        return TooEntangled(step.bounds.search)
    if not waiting:
        return ()
    # One search tells of all that it waits for: it goes on with all of them, or with none.
    return (yield from deadlocks.search(step, waiting[0], given=(row, owner)))


def break_lock(step: Step, command: Break) -> Asking[BreakUnderWay]:
    """Tell every holder to go. One that has not gone within its ttl is removed; at once if forced."""
    most, upto = command.most, command.upto
    if most is not None and upto is None:
        upto = yield ask.Counter(step.bucket(command.name))
    question = ask.OnName(command.kind, command.name, True, None, command.after, None if most is None else most + 1)
    found: tuple[Row, ...] = yield question
    page = found[:most]
    holders = [row for row in page if row.token is not None and (upto is None or row.token <= upto)]
    sessions: dict[str, Session] = yield ask.Sessions(tuple({row.claim.session for row in holders}))
    step.watched = yield ask.Watched()
    for row in holders:
        claim = row.claim
        step.changes.append(PutTombstone(Tombstone(claim.id, claim.session, BROKEN)))
        step.notices.append(Notice(claim.session, claim.id, GONE))
        yield from step.tell("broken", row)
        if command.force:
            step.changes.append(DropRow(row))
        else:
            end = step.now + sessions[claim.session].ttl
            end = end if row.dies_at is None else min(end, row.dies_at)
            # It could be adopted otherwise, and would outlive the break.
            step.changes.append(PutRow(row._replace(dies_at=end, ticket=NO_TICKET)))
    if command.force:
        behind: dict[tuple[str, bool], None] = {}
        for row in holders:
            if step.is_over:
                lines.leave_all(step, row.claim)
                continue
            affected: tuple[str, ...] = yield ask.Affected(row.claim, step.bounds.names)
            lines.leave_rest(step, row.claim, affected)
            behind.update(((name, bool(row.claim.limit)), None) for name in affected)
        for name, counted in behind:
            yield from lines.pass_on(step, command.kind, name, counted)
    claims = tuple(row.id for row in holders)
    if len(page) == len(found):
        return BreakUnderWay(claims)
    return BreakUnderWay(claims, (page[-1].order, page[-1].id), upto)
