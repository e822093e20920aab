"""The lock table's questions as SQL, inside the caller's transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, NamedTuple

from holdfast.core import names
from holdfast.core.table import changes as ch
from holdfast.core.table import questions as ask
from holdfast.core.table.places import arrival
from holdfast.core.table.rows import WITHDRAWN, Cell, Letter, Row, Session, Tombstone, Watch
from holdfast.model import Claim, LockEvent

_ROW = (
    "c.id, c.session, c.owner, c.kind, c.name, c.mode, c.subtree, c.permits, c.reentrant, c.max_hold, c.note,"
    " c.thread, c.ord, c.since, c.token, c.slot, c.dies_at, c.ticket"
)
_LIVE = "s.expires_at > :now AND (c.dies_at IS NULL OR c.dies_at > :now)"
_CLAIMS = f"SELECT {_ROW} FROM claims c JOIN sessions s ON s.id = c.session WHERE {_LIVE}"
_CONFLICTS = "(:exclusive OR c.mode = 'exclusive')"
_FIRST = " ORDER BY c.ord, c.id LIMIT 1"
_WIDTH = 18

# Two answers of yes or no spare the uncontended case the questions behind them.
_SCENE = f"""
SELECT s.id, s.ttl, s.expires_at, s.app, s.host, s.pid, k.last, k.bound,
       EXISTS (SELECT 1 FROM watches), t.reason,
       EXISTS (SELECT 1 FROM claims WHERE kind = :kind AND name = :name),
       EXISTS (SELECT 1 FROM claims WHERE token IS NULL),
       {_ROW}
FROM counter k
LEFT JOIN sessions s ON s.id = :session
LEFT JOIN tombstones t ON t.session = :session AND t.claim_id = :id
LEFT JOIN claims c ON c.id = :id
WHERE k.id = 0
"""
_BLOCKER = f"{_CLAIMS} AND c.kind = :kind AND c.name = :name AND c.ord < :before AND {_CONFLICTS}{_FIRST}"
_IN_LINE = f"{_CLAIMS} AND c.kind = :kind AND c.name = :name AND c.token IS NULL AND c.ord > :after{_FIRST}"
_HOLDERS = f"{_CLAIMS} AND c.kind = :kind AND c.name = :name AND c.token IS NOT NULL ORDER BY c.ord, c.id"
_HELD = (
    f"{_CLAIMS} AND c.kind = :kind AND c.name = :name AND c.token IS NOT NULL AND c.owner = :owner"
    f" AND (:shared OR c.mode = 'exclusive') AND (c.subtree OR NOT :subtree){_FIRST}"
)
_PUT_ROW = f"INSERT OR REPLACE INTO claims ({_ROW.replace('c.', '')}) VALUES ({', '.join('?' * _WIDTH)})"
_ANY = 2**62


def below(name: str) -> tuple[str, str]:
    """The range of names under a path: `db/` up to, and without, `db0` (the character after the slash)."""
    return name + "/", name + "0"


def decode(values: tuple[Any, ...]) -> Row:
    """A row of `claims` as the table knows it."""
    (id_, session, owner, kind, name, mode, subtree, limit, reentrant, max_hold, note, thread) = values[:12]
    claim = Claim(
        id_,
        session,
        owner,
        kind,
        name,
        mode,
        bool(subtree),
        limit,
        True,
        bool(reentrant),
        max_hold,
        note,
        thread,
    )
    return Row(claim, *values[12:])


def encode(row: Row) -> tuple[Any, ...]:
    """The same, the other way."""
    c = row.claim
    return (
        c.id, c.session, c.owner, c.kind, c.name, c.mode, c.subtree, c.limit, c.reentrant, c.max_hold, c.note,
        c.thread, row.order, row.since, row.token, row.slot, row.dies_at, row.ticket,
    )  # fmt: skip


class BoundReached(Exception):
    """The counter would pass the bound that is known to be on disk."""

    def __init__(self, needed: int) -> None:
        self.needed = needed
        super().__init__(needed)


class Counted(NamedTuple):
    """How many claims waited in the queue that was counted last. It is good until anything else changes a claim."""

    kind: str
    name: str
    before: int
    """All that waited have lower places than this."""
    waiting: int
    version: int
    """Of the file: another one after a commit of another connection."""


class SqliteRows:
    """Answers the table's questions and takes its changes on one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.execute = connection.execute
        self.bound = self._highest = 0
        self.dropped_sessions: list[str] = []
        self._counted: Counted | None = None
        self._committed: Counted | None = None

    def begun(self) -> None:
        """A transaction begins. What is learnt in it is known to the next one if it is committed."""
        self._counted, self._committed = self._committed, None

    def committed(self) -> None:
        """The transaction was committed."""
        self._committed = self._counted

    def count_claims(self, session: str) -> tuple[int, int]:
        """How many claims a session has, and the highest of their tokens."""
        sql = "SELECT count(*), max(token) FROM claims WHERE id > :low AND id < :high"
        ((count, highest),) = self.execute(sql, {"low": f"{session}-", "high": f"{session}."})
        return count, highest or 0

    def answer(self, question: ask.Question, now: float) -> Any:
        return _ANSWERS[type(question)](self, question, now)

    def put(self, change: ch.Change) -> None:
        _PUTS[type(change)](self, change)

    # Answers

    def rows(self, sql: str, values: dict[str, Any]) -> tuple[Row, ...]:
        return tuple(decode(found) for found in self.execute(sql, values))

    def one(self, sql: str, values: dict[str, Any]) -> Row | None:
        found = self.execute(sql, values).fetchone()
        return None if found is None else decode(found)

    def known(self, claim: Claim) -> tuple[Session | None, Row | None, Tombstone | None, int, bool, bool, bool]:
        """The session, the claim itself, its tombstone, the counter, and what is so:

        whether anybody watches, whether the name is in use, and whether anybody waits for anything.
        """
        # By name: Python 3.12 warns of numbered ones.
        values = {"session": claim.session, "id": claim.id, "kind": claim.kind, "name": claim.name}
        found = self.execute(_SCENE, values).fetchone()
        self.bound = found[7]
        last = self._never_back(found[6])
        return (
            None if found[0] is None else Session(*found[:6]),
            None if found[12] is None else decode(found[12:]),
            None if found[9] is None else Tombstone(claim.id, claim.session, found[9]),
            last,
            bool(found[8]),
            bool(found[10]),
            bool(found[11]),
        )

    def blocker(self, claim: Claim, before: int, now: float) -> Row | None:
        values = {
            "now": now, "kind": claim.kind, "name": claim.name, "before": before,
            "exclusive": claim.mode == "exclusive",
        }  # fmt: skip
        found = self.one(_BLOCKER, values)
        if found is None and ("/" in claim.name or claim.subtree):
            terms, more = self.across(claim)
            first_of = f"{_CLAIMS} AND c.kind = :kind AND c.ord < :before AND {_CONFLICTS}"
            firsts = (self.one(f"{first_of} AND {term}{_FIRST}", values | more) for term in terms)
            found = min(filter(None, firsts), key=arrival, default=None)
        return found

    def across(self, claim: Claim) -> tuple[list[str], dict[str, Any]]:
        """The conditions for claims on other names that can conflict: subtrees above, all below a subtree.

        Each is for a statement of its own: with OR between them, SQLite would read all claims of the kind.
        """
        above = {f"up{number}": path for number, path in enumerate(names.ancestors(claim.name))}
        terms = [f"(c.subtree AND c.name IN ({', '.join(':' + key for key in above)}))"] if above else []
        if claim.subtree:
            terms.append("(c.name > :low AND c.name < :high)")
        low, high = below(claim.name)
        return terms, {**above, "low": low, "high": high}

    def affected(self, claim: Claim) -> tuple[str, ...]:
        values: dict[str, Any] = {"kind": claim.kind, "name": claim.name}
        waiting = "SELECT c.name FROM claims c WHERE c.token IS NULL AND c.kind = :kind"
        # A long queue is not read to the end, only to find the same name again.
        sql = f"{waiting} AND c.name = :name LIMIT 1"
        if "/" in claim.name or claim.subtree:
            terms, more = self.across(claim)
            further = " ".join(f"UNION {waiting} AND {term}" for term in terms)
            sql = f"SELECT * FROM ({sql}) {further} ORDER BY 1"
            values |= more
        return tuple(name for (name,) in self.execute(sql, values))

    def permits(self, kind: str, name: str, now: float) -> tuple[Row, ...]:
        return self.rows(_HOLDERS, {"kind": kind, "name": name, "now": now})

    def _scene(self, q: ask.Scene, now: float) -> tuple[Any, ...]:
        claim = q.claim
        session, row, stone, last, watched, in_use, _ = self.known(claim)
        permits: tuple[Row, ...] = ()
        blocker: Row | None = None
        if claim.limit:
            permits = self.permits(claim.kind, claim.name, now)
            blocker = self._next_waiting(ask.NextWaiting(claim.kind, claim.name, -1), now)
        elif in_use or claim.subtree or "/" in claim.name:
            blocker = self.blocker(claim, _ANY, now)
        return session, row, stone, last, blocker, permits, watched

    def _departure(self, q: ask.Departure, now: float) -> tuple[Any, ...]:
        session, row, stone, last, watched, _, anybody_waits = self.known(q.claim)
        waiting = self.affected(q.claim) if anybody_waits else ()
        return session, row, stone, last, waiting, watched

    def _next_waiting(self, q: ask.NextWaiting, now: float) -> Row | None:
        return self.one(_IN_LINE, {"kind": q.kind, "name": q.name, "after": q.after, "now": now})

    def _held(self, q: ask.Held, now: float) -> Row | None:
        claim = q.claim
        values = {
            "owner": claim.owner, "kind": claim.kind, "name": claim.name, "now": now,
            "shared": claim.mode == "shared", "subtree": claim.subtree,
        }  # fmt: skip
        return self.one(_HELD, values)

    def _position(self, q: ask.Position, now: float) -> int:
        # Those of sessions that have run out are looked up: they are few, or none.
        dead = (
            "SELECT count(*) FROM sessions s CROSS JOIN claims c ON c.id > s.id || '-' AND c.id < s.id || '.'"
            " WHERE s.expires_at <= :now AND c.kind = :kind AND c.name = :name AND c.token IS NULL AND c.ord < :order"
        )
        values = {"kind": q.kind, "name": q.name, "order": q.order, "now": now}
        return self._waiting_before(q) - int(self.execute(dead, values).fetchone()[0])

    def _waiting_before(self, q: ask.Position) -> int:
        """All are counted by the index alone, and once only if thousands enter one queue one after the other."""
        (version,) = self.execute("PRAGMA data_version").fetchone()
        known = self._counted
        if known is not None and known[:2] == q[:2] and known.before <= q.order and known.version == version:
            return known.waiting
        queue = "FROM claims WHERE kind = :kind AND name = :name AND token IS NULL AND ord"
        sql = f"SELECT count(*), EXISTS (SELECT 1 {queue} >= :order) {queue} < :order"
        waiting, more = self.execute(sql, q._asdict()).fetchone()
        self._counted = None if more else Counted(q.kind, q.name, q.order, waiting, version)
        return int(waiting)

    def _put_row(self, change: ch.PutRow) -> None:
        row, known = change.row, self._counted
        self._counted = None
        self.execute(_PUT_ROW, encode(row))
        here = known is not None and row.token is None and (row.claim.kind, row.claim.name) == known[:2]
        if known is not None and here and row.order >= known.before:
            self._counted = known._replace(before=row.order + 1, waiting=known.waiting + 1)

    def _drop_row(self, change: ch.DropRow) -> None:
        row, self._counted = change.row, None
        sql = "DELETE FROM claims WHERE kind = ? AND name = ? AND ord = ? AND id = ?"
        self.execute(sql, (row.claim.kind, row.claim.name, row.order, row.id))

    def _busy(self, q: ask.Busy, now: float) -> bool:
        sql = "SELECT 1 FROM claims WHERE owner = ? AND id <> ? LIMIT 1"
        return self.execute(sql, (q.owner, q.claim_id)).fetchone() is not None

    def _line(self, q: ask.Line, now: float) -> tuple[Row, ...]:
        terms, more = self.across(q.claim)
        values = {"kind": q.claim.kind, "name": q.claim.name, "now": now, **more}
        parts = (self.rows(f"{_CLAIMS} AND c.kind = :kind AND {term}", values) for term in ("c.name = :name", *terms))
        return tuple(sorted((row for part in parts for row in part), key=arrival))

    def _waiting_of(self, q: ask.WaitingOf, now: float) -> tuple[Row, ...]:
        found: list[Row] = []
        for owner in q.owners:
            found += self.rows(f"{_CLAIMS} AND c.token IS NULL AND c.owner = :owner", {"owner": owner, "now": now})
        return tuple(sorted(found, key=lambda row: (row.order, row.id)))

    def _sessions(self, q: ask.Sessions, now: float) -> dict[str, Session]:
        sql = "SELECT id, ttl, expires_at, app, host, pid FROM sessions WHERE id = ?"
        found = (self.execute(sql, (id_,)).fetchone() for id_ in q.ids)
        return {values[0]: Session(*values) for values in found if values is not None}

    def _beat(self, q: ask.Beat, now: float) -> ask.BeatAnswer:
        session = self._sessions(ask.Sessions((q.session,)), now).get(q.session)
        stones = self.execute("SELECT claim_id, session, reason FROM tombstones WHERE session = ?", (q.session,))
        return ask.BeatAnswer(session, tuple(Tombstone(*values) for values in stones if values[2] != WITHDRAWN))

    def _session_rows(self, q: ask.SessionRows, now: float) -> tuple[Row, ...]:
        sql = f"SELECT {_ROW} FROM claims c WHERE c.id > :low AND c.id < :high ORDER BY c.id LIMIT :limit"
        return self.rows(sql, {"low": q.after or f"{q.session}-", "high": f"{q.session}.", "limit": q.limit})

    def _dead(self, q: ask.Dead, now: float) -> ask.DeadAnswer:
        values = {"now": now, "limit": q.limit}
        sessions = self.execute(
            "SELECT id, ttl, expires_at, app, host, pid FROM sessions WHERE expires_at <= :now"
            " ORDER BY expires_at, id LIMIT :limit",
            values,
        )
        rows = self.rows(
            f"SELECT {_ROW} FROM claims c WHERE c.dies_at IS NOT NULL AND c.dies_at <= :now"
            " ORDER BY c.dies_at, c.id LIMIT :limit",
            values,
        )
        cells = self.execute(
            "SELECT kind, name, value, version, keep, expires_at FROM cells"
            " WHERE expires_at IS NOT NULL AND expires_at <= :now ORDER BY expires_at, kind, name LIMIT :limit",
            values,
        )
        return ask.DeadAnswer(
            tuple(Session(*found) for found in sessions), rows, tuple(Cell(*found) for found in cells)
        )

    def _next_death(self, q: ask.NextDeath, now: float) -> float | None:
        sql = (
            "SELECT min(at) FROM (SELECT min(expires_at) AS at FROM sessions WHERE expires_at > :now UNION ALL"
            " SELECT min(dies_at) FROM claims WHERE dies_at IS NOT NULL AND dies_at > :now)"
        )
        found: float | None = self.execute(sql, {"now": now}).fetchone()[0]
        return found

    def _on_name(self, q: ask.OnName, now: float) -> tuple[Row, ...]:
        sql = f"{_CLAIMS} AND c.kind = :kind AND c.name = :name ORDER BY c.ord, c.id"
        return self.rows(sql, {"kind": q.kind, "name": q.name, "now": now})

    def _under(self, q: ask.Under, now: float) -> tuple[Row, ...]:
        path = q.prefix.rstrip("/")
        low, high = below(path)
        values = {
            "now": now,
            "limit": q.limit,
            "kind": q.kind,
            "next": q.kind[:-1] + "/",
            "low": low,
            "high": high,
        }
        condition = "c.kind > :kind AND c.kind < :next" if q.kind.endswith(".") else "c.kind = :kind"
        if q.prefix:
            values["path"] = path
            itself = "" if q.prefix.endswith("/") else "c.name = :path OR "
            condition += f" AND ({itself}(c.name > :low AND c.name < :high))"
        return self.rows(f"{_CLAIMS} AND {condition} ORDER BY c.kind, c.name, c.ord, c.id LIMIT :limit", values)

    def _row_by_id(self, q: ask.RowById, now: float) -> tuple[Row, Session] | None:
        row = self.one(f"{_CLAIMS} AND c.id = :id", {"id": q.claim_id, "now": now})
        if row is None:
            return None
        return row, self._sessions(ask.Sessions((row.claim.session,)), now)[row.claim.session]

    def _cell_now(self, q: ask.CellNow, now: float) -> ask.CellAnswer:
        sql = (
            "SELECT kind, name, value, version, keep, expires_at FROM cells"
            " WHERE kind = ? AND name = ? AND (expires_at IS NULL OR expires_at > ?)"
        )
        found = self.execute(sql, (q.kind, q.name, now)).fetchone()
        last, watched = self._counter(ask.Counter(q.bucket), now), self._watched(ask.Watched(), now)
        return ask.CellAnswer(None if found is None else Cell(*found), last, watched)

    def _counter(self, q: ask.Counter, now: float) -> int:
        last, self.bound = self.execute("SELECT last, bound FROM counter").fetchone()
        return self._never_back(last)

    def _never_back(self, last: int) -> int:
        """The counter, or a higher one that was seen before: the file was put back to an earlier copy then."""
        self._highest = max(self._highest, last)
        return self._highest

    def _watched(self, q: ask.Watched, now: float) -> bool:
        return self.execute("SELECT 1 FROM watches LIMIT 1").fetchone() is not None

    def _watchers(self, q: ask.Watchers, now: float) -> tuple[ask.WatcherAnswer, ...]:
        sql = (
            "SELECT w.session, w.id, w.kind, w.prefix, w.given FROM watches w JOIN sessions s ON s.id = w.session"
            " WHERE s.expires_at > ? ORDER BY w.session, w.id"
        )
        watches = [Watch(*found) for found in self.execute(sql, (now,)).fetchall()]
        count = "SELECT ifnull(max(number), ?), count(*) FROM letters WHERE session = ? AND watch = ?"
        return tuple(
            ask.WatcherAnswer(watch, *self.execute(count, (watch.given, watch.session, watch.id)).fetchone())
            for watch in watches
            if watch.hears(q.kind, q.name)
        )

    def _mailbox(self, q: ask.Mailbox, now: float) -> ask.MailboxAnswer | None:
        its = "SELECT session, id, kind, prefix, given FROM watches WHERE session = ? AND id = ?"
        watch = self.execute(its, (q.session, q.id)).fetchone()
        if watch is None:
            return None
        sql = "SELECT number, event FROM letters WHERE session = ? AND watch = ? AND number > ? ORDER BY number"
        found = self.execute(sql, (q.session, q.id, q.after)).fetchall()
        least = "SELECT ifnull(min(number), 0) FROM letters WHERE session = ? AND watch = ?"
        first: int = self.execute(least, (q.session, q.id)).fetchone()[0]
        letters = (Letter(q.session, q.id, number, LockEvent(**json.loads(event))) for number, event in found)
        return ask.MailboxAnswer(Watch(*watch), tuple(letters), first)

    # Changes

    def _put_counter(self, change: ch.PutCounter) -> None:
        if change.last > self.bound:
            raise BoundReached(change.last)
        self.execute("UPDATE counter SET last = ?", (change.last,))

    def _drop_session(self, change: ch.DropSession) -> None:
        for table, column in (
            ("sessions", "id"),
            ("tombstones", "session"),
            ("watches", "session"),
            ("letters", "session"),
        ):
            self.execute(f"DELETE FROM {table} WHERE {column} = ?", (change.session,))
        self.dropped_sessions.append(change.session)

    def _drop_watch(self, change: ch.DropWatch) -> None:
        self.execute("DELETE FROM watches WHERE session = ? AND id = ?", change)
        self.execute("DELETE FROM letters WHERE session = ? AND watch = ?", change)

    def _put_letter(self, change: ch.PutLetter) -> None:
        letter = change.letter
        event = json.dumps(asdict(letter.event))
        self.execute("INSERT INTO letters VALUES (?, ?, ?, ?)", (letter.session, letter.watch, letter.number, event))


def _statement(sql: str, values: Callable[[Any], Iterable[Any]]) -> Callable[[SqliteRows, Any], None]:
    def run(rows: SqliteRows, change: Any) -> None:
        rows.execute(sql, tuple(values(change)))

    return run


_ANSWERS: dict[type, Callable[[SqliteRows, Any, float], Any]] = {
    ask.Scene: SqliteRows._scene,
    ask.Departure: SqliteRows._departure,
    ask.Blocker: lambda self, q, now: self.blocker(q.claim, q.order, now),
    ask.NextWaiting: SqliteRows._next_waiting,
    ask.Affected: lambda self, q, now: self.affected(q.claim),
    ask.Permits: lambda self, q, now: self.permits(q.kind, q.name, now),
    ask.Held: SqliteRows._held,
    ask.Position: SqliteRows._position,
    ask.Busy: SqliteRows._busy,
    ask.Line: SqliteRows._line,
    ask.WaitingOf: SqliteRows._waiting_of,
    ask.Sessions: SqliteRows._sessions,
    ask.Beat: SqliteRows._beat,
    ask.SessionRows: SqliteRows._session_rows,
    ask.Dead: SqliteRows._dead,
    ask.NextDeath: SqliteRows._next_death,
    ask.OnName: SqliteRows._on_name,
    ask.Under: SqliteRows._under,
    ask.RowById: SqliteRows._row_by_id,
    ask.CellNow: SqliteRows._cell_now,
    ask.Counter: SqliteRows._counter,
    ask.Watched: SqliteRows._watched,
    ask.Watchers: SqliteRows._watchers,
    ask.Mailbox: SqliteRows._mailbox,
}

_PUTS: dict[type, Callable[[SqliteRows, Any], None]] = {
    ch.PutRow: SqliteRows._put_row,
    ch.DropRow: SqliteRows._drop_row,
    ch.PutSession: _statement("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?)", lambda c: c.session[:6]),
    ch.DropSession: SqliteRows._drop_session,
    ch.PutCounter: SqliteRows._put_counter,
    ch.PutTombstone: _statement(
        "INSERT OR REPLACE INTO tombstones VALUES (?, ?, ?)",
        lambda c: (c.tombstone.session, c.tombstone.claim_id, c.tombstone.reason),
    ),
    ch.DropTombstone: _statement("DELETE FROM tombstones WHERE session = ? AND claim_id = ?", lambda c: c),
    ch.PutCell: _statement("INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?, ?)", lambda c: c.cell[:6]),
    ch.DropCell: _statement("DELETE FROM cells WHERE kind = ? AND name = ?", lambda c: c),
    ch.PutWatch: _statement("INSERT OR REPLACE INTO watches VALUES (?, ?, ?, ?, ?)", lambda c: c.watch),
    ch.DropWatch: SqliteRows._drop_watch,
    ch.PutLetter: SqliteRows._put_letter,
    ch.DropLetters: _statement("DELETE FROM letters WHERE session = ? AND watch = ? AND number <= ?", lambda c: c),
}
