"""The life of a session, and clearing up after its death.

The end of a session is one change: its claims are dead from that moment, because every answer
counts only live ones. The rows are removed afterwards, in bounded steps, and what they held is
passed on.
"""

from __future__ import annotations

from holdfast.core.table import lines
from holdfast.core.table import questions as ask
from holdfast.core.table.changes import DropCell, DropRow, DropSession, PutSession, PutTombstone
from holdfast.core.table.commands import (
    GONE,
    Close,
    Done,
    Notice,
    Open,
    Opened,
    OwnClaims,
    OwnClaimsPage,
    Renew,
    Renewed,
    SessionOver,
    Sweep,
)
from holdfast.core.table.rows import WITHDRAWN, Row, Session, Tombstone
from holdfast.core.table.step import Asking, Step

ROWS_PER_STEP = 256
"""How many dead claims one step removes at most."""


def open_session(step: Step, command: Open) -> Asking[Opened | SessionOver]:
    """Begin a session. A repeat renews; an id that has run out never comes back."""
    known: ask.BeatAnswer = yield ask.Beat(command.session.id, most=0)
    if known.session is not None and not step.alive(known.session):
        return SessionOver()
    step.changes.append(PutSession(command.session._replace(expires_at=step.now + command.session.ttl)))
    return Opened(command.session.ttl)


def renew(step: Step, command: Renew) -> Asking[Renewed | SessionOver]:
    """Keep the session alive, and clear away a little of what has died. Renewing never re-creates."""
    answer: ask.BeatAnswer = yield ask.Beat(command.session, command.after, command.most)
    session = answer.session
    if session is None or not step.alive(session):
        return SessionOver()
    step.changes.append(PutSession(session._replace(expires_at=step.now + session.ttl)))
    taken = sorted((stone.claim_id, stone.reason) for stone in answer.tombstones if stone.reason != WITHDRAWN)
    gone = tuple(one for one in taken if one[0] > command.after)[: command.most]
    more = len(gone) == command.most and bool(gone) and gone[-1] != taken[-1]
    swept = yield from sweep(step, Sweep(ROWS_PER_STEP))
    return Renewed(session.ttl, gone, 0.0 if swept.more else swept.next_death, more=more)


def own_claims(step: Step, command: OwnClaims) -> Asking[OwnClaimsPage | SessionOver]:
    """What the session has, so that its client can compare it with what it knows of."""
    answer: ask.BeatAnswer = yield ask.Beat(command.session, most=0)
    if not step.alive(answer.session):
        return SessionOver()
    rows: tuple[Row, ...] = yield ask.SessionRows(command.session, command.most + 1, command.after)
    page = rows[: command.most]
    return OwnClaimsPage(tuple((row.claim, row.token) for row in page), more=len(rows) > len(page))


def close(step: Step, command: Close) -> Asking[Done]:
    """End the session now; `more` while there are claims left to remove."""
    answer: ask.BeatAnswer = yield ask.Beat(command.session, most=0)
    if answer.session is None:
        return Done()
    step.watched = yield ask.Watched()
    ended = answer.session._replace(expires_at=min(step.now, answer.session.expires_at))
    step.changes.append(PutSession(ended))
    _, is_over = yield from bury(step, ended, command.limit)
    return Done(more=not is_over)


def sweep(step: Step, command: Sweep) -> Asking[Done]:
    """Remove claims that died, at most `limit`, and pass on what they held."""
    dead: ask.DeadAnswer = yield ask.Dead(command.limit)
    if dead.sessions or dead.rows:
        step.watched = yield ask.Watched()
    left, is_over = command.limit, True
    for row in dead.rows:
        if step.is_over:
            is_over = False
            break
        yield from retire(step, row)
        left -= 1
    for session in dead.sessions:
        if left <= 0 or not is_over:
            break
        removed, is_over = yield from bury(step, session, left)
        left -= removed
    for cell in dead.cells:
        step.changes.append(DropCell(cell.kind, cell.name))
    if left <= 0 or not is_over or len(dead.sessions) >= command.limit:
        return Done(more=True, removed=command.limit - left)
    next_death: float | None = yield ask.NextDeath()
    return Done(
        next_death=None if next_death is None else max(0.0, next_death - step.now), removed=command.limit - left
    )


def retire(step: Step, row: Row) -> Asking[None]:
    """Remove a claim whose own time is over while its session may live: the holder has to be told."""
    claim = row.claim
    answer: ask.DepartureAnswer = yield ask.Departure(claim, step.bucket(claim.name), False, step.bounds.names)
    _, _, tombstone, _, waiting, _ = answer
    if tombstone is None:
        step.changes.append(PutTombstone(Tombstone(claim.id, claim.session, lines.OVERHELD)))
    step.notices.append(Notice(claim.session, claim.id, GONE))
    yield from remove(step, row, waiting)


def bury(step: Step, session: Session, limit: int) -> Asking[tuple[int, bool]]:
    """Remove claims of a dead session, at most `limit`, and the session itself after the last.

    Returns how many were removed, and whether the session is gone.
    """
    rows: tuple[Row, ...] = yield ask.SessionRows(session.id, limit)
    behind: dict[tuple[str, str, bool], None] = {}
    removed = 0
    for row in rows:
        if removed and step.is_over:
            break
        waiting: tuple[str, ...] = yield ask.Affected(row.claim, step.bounds.names)
        yield from take_out(step, row)
        removed += 1
        lines.leave_rest(step, row.claim, waiting)
        behind.update(((row.claim.kind, name, bool(row.claim.limit)), None) for name in waiting)
    # Once for each name: whoever is next is looked for past all that is dead, which may be a long line.
    for kind, name, counted in behind:
        yield from lines.pass_on(step, kind, name, counted)
    is_over = removed == len(rows) < limit
    if is_over:
        step.changes.append(DropSession(session.id))
    return removed, is_over


def remove(step: Step, row: Row, waiting: tuple[str, ...]) -> Asking[None]:
    """Take a dead claim out and let those behind it go on."""
    yield from take_out(step, row)
    yield from lines.pass_on_all(step, row.claim, waiting)


def take_out(step: Step, row: Row) -> Asking[None]:
    """Take a dead claim out."""
    step.changes.append(DropRow(row))
    step.left -= 1 / 4
    if row.token is not None:
        yield from step.tell("expired", row)
