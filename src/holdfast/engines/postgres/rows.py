"""The lock table's nouns as PostgreSQL keeps them: what to ask, how to read the answer, what to write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from holdfast.core import names
from holdfast.core.table import changes as ch
from holdfast.core.table import questions as ask
from holdfast.core.table.rows import WITHDRAWN, Cell, Letter, Row, Session, Tombstone, Watch
from holdfast.engines.postgres import statements as st
from holdfast.engines.postgres.wire import Statement
from holdfast.model import Claim, LockEvent

Asked = tuple[Statement, tuple[Any, ...]]
"""A statement and its values, without `now`."""


def clean(text: str) -> str:
    """Text as PostgreSQL can keep it: no NUL, no half of a surrogate pair."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def session(values: list[Any] | None) -> Session | None:
    """A session, if there is one."""
    return None if values is None else Session(*values)


def row_or_none(values: list[Any] | None) -> Row | None:
    """A claim, if there is one."""
    return None if values is None else some_row(values)


def some_row(values: list[Any]) -> Row:
    """A claim."""
    id_, owner_session, owner, kind, name, mode, subtree, limit, reentrant, max_hold, note, thread, *rest = values
    claim = Claim(
        id_, owner_session, owner, kind, name, mode, subtree, limit, True, reentrant, max_hold, note, thread
    )  # fmt: skip
    return Row(claim, *rest)


def rows(values: Iterable[list[Any]]) -> tuple[Row, ...]:
    """Several claims."""
    return tuple(some_row(found) for found in values)


def path(claim: Claim) -> tuple[Any, ...]:
    """The names above it, and the range of names below it if it covers them."""
    above = list(names.ancestors(claim.name))
    return (above, f"{claim.name}/", f"{claim.name}0") if claim.subtree else (above, None, None)


def crosses(claim: Claim) -> bool:
    """Whether claims on other names can conflict with it."""
    return claim.subtree or "/" in claim.name


def id_range(session_id: str) -> tuple[str, str]:
    """Between which texts the ids of a session's claims lie."""
    return f"{session_id}-", f"{session_id}."


# Questions


def _scene(q: ask.Scene) -> Asked:
    claim = q.claim
    values = (claim.session, claim.id, q.bucket, claim.kind, claim.name)
    if claim.limit:
        return st.SCENE_PERMITS, values
    exclusive = claim.mode == "exclusive"
    if crosses(claim):
        return st.SCENE_PATH, (*values, exclusive, *path(claim))
    return st.SCENE, (*values, exclusive)


def _departure(q: ask.Departure) -> Asked:
    claim = q.claim
    values = (claim.session, claim.id, q.bucket, claim.kind, claim.name)
    return (st.DEPARTURE_PATH, (*values, *path(claim))) if crosses(claim) else (st.DEPARTURE, values)


def _affected(q: ask.Affected) -> Asked:
    values = (q.claim.kind, q.claim.name)
    return (st.AFFECTED_PATH, (*values, *path(q.claim))) if crosses(q.claim) else (st.AFFECTED, values)


def _blocker(q: ask.Blocker) -> Asked:
    values = (q.claim.kind, q.claim.name, q.claim.mode == "exclusive", q.order)
    return (st.BLOCKER_PATH, (*values, *path(q.claim))) if crosses(q.claim) else (st.BLOCKER, values)


def _line(q: ask.Line) -> Asked:
    values = (q.claim.kind, q.claim.name)
    return (st.LINE_PATH, (*values, *path(q.claim))) if crosses(q.claim) else (st.LINE, values)


def _held(q: ask.Held) -> Asked:
    c = q.claim
    return st.HELD, (c.kind, c.name, c.owner, c.mode == "shared", c.subtree)


def _under(q: ask.Under) -> Asked:
    kinds = (q.kind, q.kind[:-1] + "/") if q.kind.endswith(".") else (q.kind, q.kind)
    if not q.prefix:
        return st.UNDER, (*kinds, None, None, None, q.limit)
    above = q.prefix.rstrip("/")
    itself = None if q.prefix.endswith("/") else above
    return st.UNDER, (*kinds, itself, f"{above}/", f"{above}0", q.limit)


def _session_rows(q: ask.SessionRows) -> Asked:
    low, high = id_range(q.session)
    return st.SESSION_ROWS, (q.after or low, high, q.limit)


QUESTIONS: dict[type, Callable[[Any], Asked]] = {
    ask.Scene: _scene,
    ask.Departure: _departure,
    ask.Affected: _affected,
    ask.Blocker: _blocker,
    ask.Line: _line,
    ask.Held: _held,
    ask.Busy: lambda q: (st.BUSY, (q.owner, q.claim_id)),
    ask.Under: _under,
    ask.NextWaiting: lambda q: (st.NEXT_WAITING, (q.kind, q.name, q.after)),
    ask.Permits: lambda q: (st.PERMITS, (q.kind, q.name)),
    ask.Position: lambda q: (st.POSITION, (q.kind, q.name, q.order)),
    ask.WaitingOf: lambda q: (st.WAITING_OF, (list(q.owners),)),
    ask.Sessions: lambda q: (st.SESSIONS, (list(q.ids),)),
    ask.Beat: lambda q: (st.BEAT, (q.session, WITHDRAWN)),
    ask.SessionRows: _session_rows,
    ask.Dead: lambda q: (st.DEAD, (q.limit,)),
    ask.NextDeath: lambda q: (st.NEXT_DEATH, ()),
    ask.OnName: lambda q: (st.ON_NAME, (q.kind, q.name)),
    ask.RowById: lambda q: (st.ROW_BY_ID, (q.claim_id,)),
    ask.CellNow: lambda q: (st.CELL_NOW, (q.kind, q.name, q.bucket)),
    ask.Counter: lambda q: (st.COUNTER, (q.bucket,)),
    ask.Watched: lambda q: (st.WATCHED, ()),
    ask.Watchers: lambda q: (st.WATCHERS, ()),
    ask.Mailbox: lambda q: (st.MAILBOX, (q.session, q.id, q.after)),
}


# Answers. Each gets the question and the items after `now`.


def _known(claim: Claim, items: list[Any]) -> tuple[Session | None, Row | None, Tombstone | None, int, bool]:
    stone = None if items[2] is None else Tombstone(claim.id, claim.session, items[2])
    return session(items[0]), row_or_none(items[1]), stone, items[3], items[4]


def _read_scene(q: ask.Scene, items: list[Any]) -> ask.SceneAnswer:
    owner, itself, stone, last, watched = _known(q.claim, items)
    if q.claim.limit:
        return ask.SceneAnswer(owner, itself, stone, last, row_or_none(items[5]), rows(items[6]), watched)
    blocker = None if items[5] is None else some_row(items[5][0])
    return ask.SceneAnswer(owner, itself, stone, last, blocker, (), watched)


def _read_departure(q: ask.Departure, items: list[Any]) -> ask.DepartureAnswer:
    owner, itself, stone, last, watched = _known(q.claim, items)
    return ask.DepartureAnswer(owner, itself, stone, last, tuple(items[5]), watched)


def _read_beat(q: ask.Beat, items: list[Any]) -> ask.BeatAnswer:
    return ask.BeatAnswer(session(items[0]), tuple(Tombstone(*values) for values in items[1]))


def _read_dead(q: ask.Dead, items: list[Any]) -> ask.DeadAnswer:
    cells = tuple(Cell(kind, name, b"", 0) for kind, name in items[2])
    return ask.DeadAnswer(tuple(Session(*values) for values in items[0]), rows(items[1]), cells)


def _read_row_by_id(q: ask.RowById, items: list[Any]) -> tuple[Row, Session] | None:
    return None if items[0] is None else (some_row(items[0][0]), Session(*items[0][1]))


def _read_cell(q: ask.CellNow, items: list[Any]) -> ask.CellAnswer:
    found = items[0]
    cell = None if found is None else Cell(q.kind, q.name, bytes.fromhex(found[0]), *found[1:])
    return ask.CellAnswer(cell, items[1], items[2])


def _read_watchers(q: ask.Watchers, items: list[Any]) -> tuple[ask.WatcherAnswer, ...]:
    found = ((Watch(*values[:5]), values[5], values[6]) for values in items[0])
    return tuple(ask.WatcherAnswer(*each) for each in found if each[0].hears(q.kind, q.name))


def _read_mailbox(q: ask.Mailbox, items: list[Any]) -> ask.MailboxAnswer | None:
    watch, found, first = items
    if watch is None:
        return None
    letters = (Letter(q.session, q.id, number, LockEvent(**json.loads(event))) for number, event in found)
    return ask.MailboxAnswer(Watch(*watch), tuple(letters), first)


def _one(q: object, items: list[Any]) -> Any:
    return items[0]


def _one_row(q: object, items: list[Any]) -> Row | None:
    return row_or_none(items[0])


def _many_rows(q: object, items: list[Any]) -> tuple[Row, ...]:
    return rows(items[0])


ANSWERS: dict[type, Callable[[Any, list[Any]], Any]] = {
    ask.Scene: _read_scene,
    ask.Departure: _read_departure,
    ask.Affected: lambda q, items: tuple(items[0]),
    ask.Blocker: _one_row,
    ask.NextWaiting: _one_row,
    ask.Held: _one_row,
    ask.Permits: _many_rows,
    ask.Line: _many_rows,
    ask.WaitingOf: _many_rows,
    ask.SessionRows: _many_rows,
    ask.OnName: _many_rows,
    ask.Under: _many_rows,
    ask.Position: _one,
    ask.Busy: _one,
    ask.NextDeath: _one,
    ask.Counter: _one,
    ask.Watched: _one,
    ask.Sessions: lambda q, items: {values[0]: Session(*values) for values in items[0]},
    ask.Beat: _read_beat,
    ask.Dead: _read_dead,
    ask.RowById: _read_row_by_id,
    ask.CellNow: _read_cell,
    ask.Watchers: _read_watchers,
    ask.Mailbox: _read_mailbox,
}


# Changes. Each gives the statements that make it, at the step's `now`.


def _put_row(change: ch.PutRow, now: float) -> list[Asked]:
    found = change.row
    c = found.claim
    values = (
        c.id, c.session, c.owner, c.kind, c.name, c.mode, c.subtree, c.limit, c.reentrant, c.max_hold, clean(c.note),
        clean(c.thread), found.order, found.since, found.token, found.slot, found.dies_at, found.ticket,
    )  # fmt: skip
    return [(st.PUT_ROW, values)]


def put_session(change: ch.PutSession, channel: str) -> Asked:
    """A session of this client, which is notified there."""
    s = change.session
    return st.PUT_SESSION, (s.id, s.ttl, s.expires_at, clean(s.app), clean(s.host), s.pid, channel)


def _drop_session(change: ch.DropSession, now: float) -> list[Asked]:
    """Its row is deleted at its second funeral: see `FUNERAL`."""
    only = (change.session,)
    return [
        *((statement, only) for statement in (st.DROP_TOMBSTONES, st.DROP_WATCHES, st.DROP_MAIL)),
        (st.DROP_SESSION, (change.session, now)),
        (st.BURY_SESSION, (change.session, now)),
    ]


def _put_letter(change: ch.PutLetter, now: float) -> list[Asked]:
    letter = change.letter
    return [(st.PUT_LETTER, (letter.session, letter.watch, letter.number, json.dumps(asdict(letter.event))))]


CHANGES: dict[type, Callable[[Any, float], list[Asked]]] = {
    ch.PutRow: _put_row,
    ch.DropRow: lambda change, now: [(st.DROP_ROW, (change.row.id,))],
    ch.DropSession: _drop_session,
    ch.PutCounter: lambda c, now: [(st.PUT_COUNTER, (c.bucket, c.last))],
    ch.PutTombstone: lambda c, now: [(st.PUT_TOMBSTONE, tuple(c.tombstone))],
    ch.DropTombstone: lambda c, now: [(st.DROP_TOMBSTONE, (c.session, c.claim_id))],
    ch.PutCell: lambda c, now: [(st.PUT_CELL, tuple(c.cell[:6]))],
    ch.DropCell: lambda c, now: [(st.DROP_CELL, (c.kind, c.name))],
    ch.PutWatch: lambda c, now: [(st.PUT_WATCH, tuple(c.watch))],
    ch.DropWatch: lambda c, now: [(st.DROP_WATCH, (c.session, c.id)), (st.DROP_WATCH_MAIL, (c.session, c.id))],
    ch.PutLetter: _put_letter,
    ch.DropLetters: lambda c, now: [(st.DROP_LETTERS, (c.session, c.watch, c.upto))],
}
