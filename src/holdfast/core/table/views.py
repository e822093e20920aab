"""What people see: who holds, who waits, what happened."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from holdfast.core.table import questions as ask
from holdfast.core.table.changes import DropLetters, DropWatch, PutWatch
from holdfast.core.table.commands import (
    Done,
    Fetch,
    Inspect,
    Letters,
    List,
    SessionOver,
    Subscribe,
    Unsubscribe,
)
from holdfast.core.table.rows import Row, Session, Watch, party
from holdfast.core.table.step import MOST_LETTERS, Asking, Step
from holdfast.model import MAX_TOKEN, LockInfo


def inspect(step: Step, command: Inspect) -> Asking[LockInfo]:
    """One lock; nobody holds or awaits it if it is not in use."""
    rows: tuple[Row, ...] = yield ask.OnName(command.kind, command.name)
    sessions: dict[str, Session] = yield ask.Sessions(tuple({row.claim.session for row in rows}))
    return describe(step, command.kind, command.name, rows, sessions)


def list_locks(step: Step, command: List) -> Asking[tuple[LockInfo, ...]]:
    """Every lock in use under a prefix, by kind and name."""
    rows: tuple[Row, ...] = yield ask.Under(command.prefix, command.kind, command.limit)
    sessions: dict[str, Session] = yield ask.Sessions(tuple({row.claim.session for row in rows}))
    grouped = groupby(rows, key=lambda row: (row.claim.kind, row.claim.name))
    return tuple(describe(step, kind, name, group, sessions) for (kind, name), group in grouped)


def describe(step: Step, kind: str, name: str, rows: Iterable[Row], sessions: dict[str, Session]) -> LockInfo:
    """The claims on one name as people see them."""
    rows = list(rows)
    parties = [(row, party(row, sessions.get(row.claim.session), step.now, step.wall)) for row in rows]
    return LockInfo(
        kind=kind,
        name=name,
        holders=tuple(who for row, who in parties if row.token is not None),
        waiters=tuple(who for row, who in parties if row.token is None),
        limit=max((row.claim.limit for row in rows), default=0),
    )


def subscribe(step: Step, command: Subscribe) -> Asking[Done | SessionOver]:
    """Collect events from now on."""
    answer: ask.BeatAnswer = yield ask.Beat(command.session, most=0)
    if not step.alive(answer.session):
        return SessionOver()
    known: ask.MailboxAnswer | None = yield ask.Mailbox(command.session, command.id, MAX_TOKEN)
    given = 0 if known is None else known.watch.given
    step.changes.append(PutWatch(Watch(command.session, command.id, command.kind, command.prefix, given)))
    return Done()


def unsubscribe(step: Step, command: Unsubscribe) -> Asking[Done]:
    """Collect no more."""
    step.changes.append(DropWatch(command.session, command.id))
    return Done()
    yield  # a step that asks nothing is a generator all the same


def fetch(step: Step, command: Fetch) -> Asking[Letters | SessionOver]:
    """What has been collected since the last fetch."""
    answer: ask.MailboxAnswer | None = yield ask.Mailbox(command.session, command.id, command.after)
    if answer is None:
        return SessionOver()
    watch, found, first = answer
    if command.after > watch.given:
        # A store that was put back to an earlier copy. Events may have come since that have these numbers again.
        return Letters((), watch.given, overflowed=True, lost=True)
    if 0 < first <= command.after:
        step.changes.append(DropLetters(command.session, command.id, command.after))
    last = found[-1].number if found else command.after
    if last > watch.given:
        step.changes.append(PutWatch(watch._replace(given=last)))
    # What was fetched is kept until the next fetch, and takes up room until then.
    full = first > 0 and last - first >= MOST_LETTERS
    return Letters(tuple(letter.event for letter in found), last, overflowed=full)
