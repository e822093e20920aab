"""The lock table's rows in dictionaries: for `memory://`, the server and the simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nsmallest
from itertools import islice
from typing import Any

from holdfast.core.table import changes as ch
from holdfast.core.table import entanglement
from holdfast.core.table import questions as ask
from holdfast.core.table.directory import Directory, Name
from holdfast.core.table.ends import NEVER, Ends
from holdfast.core.table.line import Line
from holdfast.core.table.mailboxes import Mailboxes
from holdfast.core.table.places import arrival
from holdfast.core.table.rivals import INFINITY, Rivals
from holdfast.core.table.rows import WITHDRAWN, Cell, Row, Session, Tombstone
from holdfast.core.table.usage import Usage
from holdfast.core.table.waiting import Waiting
from holdfast.model import Claim

NOBODY = ask.Taken(None, 0)
MOST_DEAD = 1_000
"""Dead claims that a question passes to find a live one. Beyond these a dead one is in the way until it is removed."""
MOST_ENDED = 64
"""The same for sessions that have ended."""
MOST_ROWS = 10_000
"""Claims of a session, or dead ones on a name, among which the first to remove, or to show, are looked for."""


class Dictionary:
    """Answers the table's questions and takes its changes."""

    def __init__(self, first_number: int = 0) -> None:
        self.first_number = first_number
        self.sessions: dict[str, Session] = {}
        self.usage = Usage(self.sessions)
        self.session_ends: Ends[str] = Ends()
        self.rows: dict[str, Row] = {}
        self.looked_at = 0
        self.whole_lines = False
        """How many rows it has looked at to answer questions: what these cost."""
        self.rivals = Rivals()
        self.alone, self.lines = self.rivals.alone, self.rivals.lines
        self.directory = Directory()
        """The names of both, in order."""
        self.by_session: dict[str, dict[str, Row]] = {}
        self.claims_of: dict[str, int] = {}
        """How many claims an owner has."""
        self.waiting = Waiting()
        self.mortal: Ends[str] = Ends()
        """Rows with a `dies_at`."""
        self.counters: dict[int, int] = {}
        self.tombstones: dict[str, dict[str, Tombstone]] = {}
        self.cells: dict[Name, Cell] = {}
        self.mortal_cells: Ends[Name] = Ends()
        """Cells with an `expires_at`."""
        self.mail = Mailboxes(self.usage)
        self.watches, self.letters = self.mail.watches, self.mail.letters

    def answer(self, question: ask.Question, now: float) -> Any:
        """The answer to a question of the table."""
        return _ANSWERS[type(question)](self, question, now)

    def put(self, change: ch.Change) -> None:
        """Take a change of the table."""
        _PUTS[type(change)](self, change)

    # What is alive

    def alive(self, row: Row, now: float) -> bool:
        self.looked_at += 1
        session = self.sessions.get(row.claim.session)
        return session is not None and session.expires_at > now and (row.dies_at is None or row.dies_at > now)

    def in_the_way(self, now: float) -> Callable[[Row], bool]:
        """Whether a row is alive; any row is in the way after so many that are dead."""
        most = self.looked_at + MOST_DEAD
        return lambda row: self.looked_at >= most or self.alive(row, now)

    def all_alive(self, now: float) -> bool:
        """Whether nothing has died that is still here."""
        return now < self.session_ends.first() and now < self.mortal.first()

    def first_alive(self, rows: Iterable[Row], now: float) -> Row | None:
        """The first live one. None also after very many dead ones: their removal passes the lock on."""
        return next((row for row in islice(rows, MOST_DEAD) if self.alive(row, now)), None)

    def blocker(self, claim: Claim, before: float, now: float) -> Row | None:
        """The first live claim that conflicts and came earlier: on the name itself, or else across the path."""
        self.looked_at += claim.name.count("/")
        return self.rivals.blocker(claim, before, self.in_the_way(now))

    def other_way(self, claim: Claim, now: float) -> Row | None:
        """A live claim across the path that is counted where this one is not, or the other way round."""
        return self.rivals.other_way(claim, self.in_the_way(now))

    def holding(self, kind: str, name: str, now: float) -> tuple[Row, ...]:
        """The live holders of a name."""
        line = self.rivals.line(kind, name)
        return () if line is None else self._in_order(line.holders, now)

    def taken(self, kind: str, name: str, now: float) -> ask.Taken:
        """Which permits they have."""
        line = self.lines.get((kind, name))
        if line is None and (kind, name) not in self.alone:
            return NOBODY
        if line is None or (not self.all_alive(now) and len(line.holders) <= MOST_DEAD):
            return ask.Taken.by(self.holding(kind, name, now))
        return ask.Taken(line.holders.first(False, INFINITY, lambda row: True), line.holders.taken)

    def affected(self, claim: Claim, now: float, most: int | None = None) -> tuple[str, ...]:
        """Names of lines with somebody in them that a claim like this can hold up."""
        if "/" not in claim.name and not claim.subtree:
            line = self.lines.get((claim.kind, claim.name))
            return (claim.name,) if line is not None and line.queue else ()
        row = self.rows.get(claim.id) if claim.subtree else None
        # Somebody who waits for the dead alone may go on too, wherever it stands.
        after = row.order if row is not None and self.all_alive(now) else -1
        found = self.rivals.affected(claim, after, self.in_the_way(now), most)
        self.looked_at += len(found) + claim.name.count("/")
        return found

    def _affected_below(self, q: ask.AffectedBelow, now: float) -> ask.BelowAnswer:
        found, further = self.rivals.affected_below(q.claim, q.after, self.in_the_way(now), q.most)
        self.looked_at += len(found) + q.claim.name.count("/")
        return ask.BelowAnswer(tuple(sorted(found)), further)

    def last(self, bucket: int) -> int:
        return self.counters.get(bucket, self.first_number)

    # Answers

    def _scene(self, q: ask.Scene, now: float) -> tuple[Any, ...]:
        claim = q.claim
        key = (claim.kind, claim.name)
        blocker: Row | None = None
        permits = NOBODY
        if key in self.alone or key in self.lines or claim.subtree or "/" in claim.name:
            blocker = self.other_way(claim, now)
            if claim.limit:
                permits = self.taken(claim.kind, claim.name, now)
                blocker = blocker or self._next_waiting(ask.NextWaiting(claim.kind, claim.name, -1), now)
            else:
                blocker = blocker or self.blocker(claim, INFINITY, now)
        stones = self.tombstones.get(claim.session)
        return (
            self.sessions.get(claim.session),
            self.rows.get(claim.id),
            stones.get(claim.id) if stones else None,
            self.counters.get(q.bucket, self.first_number),
            blocker,
            permits,
            bool(self.watches),
        )

    def _departure(self, q: ask.Departure, now: float) -> tuple[Any, ...]:
        claim = q.claim
        stones = self.tombstones.get(claim.session)
        return (
            self.sessions.get(claim.session),
            self.rows.get(claim.id),
            stones.get(claim.id) if stones else None,
            self.counters.get(q.bucket, self.first_number),
            () if q.stays else self.affected(claim, now, q.most),
            bool(self.watches),
        )

    def _next_waiting(self, q: ask.NextWaiting, now: float) -> Row | None:
        line = self.lines.get((q.kind, q.name))
        if line is None:
            return None
        return self.first_alive(line.queue.after(q.after, q.plain), now)

    def _held(self, q: ask.Held, now: float) -> Row | None:
        claim = q.claim
        line = self.rivals.line(claim.kind, claim.name)
        if line is None:
            return None
        mine = line.holders.of(claim.owner)
        self.looked_at += len(mine) // 4
        covering = (
            row
            for row in mine
            if (row.exclusive or claim.mode == "shared")
            and (row.claim.subtree or not claim.subtree)
            and self.alive(row, now)
        )
        return min(covering, key=arrival, default=None)

    def _position(self, q: ask.Position, now: float) -> int:
        line = self.lines.get((q.kind, q.name))
        if line is None:
            return 0
        ahead = line.queue.ahead(q.order)
        # Those in line have no end of their own: they die with their session. Where very many have died, they count
        # until they are removed: how many wait is for people.
        if now < self.session_ends.first():
            return ahead
        sessions = self.session_ends.dead(now, MOST_ENDED + 1)
        ended = [self.by_session.get(id_, {}) for id_ in sessions]
        count = sum(map(len, ended))
        self.looked_at += len(sessions)
        if len(sessions) <= MOST_ENDED and count <= MOST_DEAD:
            self.looked_at += count
            ahead -= sum(id_ in line.queue and row.order < q.order for mine in ended for id_, row in mine.items())
        return ahead

    def _busy(self, q: ask.Busy, now: float) -> bool:
        count = self.claims_of.get(q.owner, 0)
        return count > (q.claim_id in self.rows)

    def _line(self, q: ask.Line, now: float) -> tuple[Row, ...] | None:
        near, cost = entanglement.near(self.rivals, self.waiting, q, lambda row: self.alive(row, now))
        self.looked_at += cost + q.claim.name.count("/")
        return None if near is None else self._few(near, q.most, now)

    def _waiting_of(self, q: ask.WaitingOf, now: float) -> tuple[Row, ...] | None:
        return self._few(self.waiting.of(q.owners), q.most, now)

    def _few(self, rows: Iterable[Row], most: int | None, now: float) -> tuple[Row, ...] | None:
        """The live ones in order; None if there are too many rows to look at."""
        limit = None if most is None else most + MOST_DEAD
        found = list(islice(rows, limit))
        if len(found) == limit:
            return None
        return self._in_order(found, now)

    def _in_order(self, rows: Iterable[Row], now: float) -> tuple[Row, ...]:
        return tuple(sorted((row for row in rows if self.alive(row, now)), key=arrival))

    def _sessions(self, q: ask.Sessions, now: float) -> dict[str, Session]:
        return {id_: self.sessions[id_] for id_ in q.ids if id_ in self.sessions}

    def _beat(self, q: ask.Beat, now: float) -> ask.BeatAnswer:
        stones = self.tombstones.get(q.session)
        session = self.sessions.get(q.session)
        if not stones or q.most == 0:
            return ask.BeatAnswer(session, ())
        told = (stone for stone in stones.values() if stone.reason != WITHDRAWN and stone.claim_id > q.after)
        self.looked_at += len(stones)
        return ask.BeatAnswer(session, tuple(told if q.most is None else nsmallest(q.most + 1, told)))

    def _session_rows(self, q: ask.SessionRows, now: float) -> tuple[Row, ...]:
        rows = self.by_session.get(q.session, {})
        if q.after is None and len(rows) > MOST_ROWS:
            # To find the smallest ids takes a look at all of them, for each step.
            return tuple(islice(rows.values(), q.limit))
        self.looked_at += len(rows) // 8
        after = q.after or ""
        return tuple(rows[id_] for id_ in nsmallest(q.limit, (id_ for id_ in rows if id_ > after)))

    def _dead(self, q: ask.Dead, now: float) -> ask.DeadAnswer:
        return ask.DeadAnswer(
            tuple(self.sessions[id_] for id_ in self.session_ends.dead(now, q.limit)),
            tuple(self.rows[id_] for id_ in self.mortal.dead(now, q.limit)),
            tuple(self.cells[key] for key in self.mortal_cells.dead(now, q.limit)),
        )

    def _next_death(self, q: ask.NextDeath, now: float) -> float | None:
        first = min(self.session_ends.first(), self.mortal.first())
        if first > now:
            return None if first == NEVER else first
        self.looked_at += (len(self.sessions) + len(self.mortal.moments)) // 8
        ends = [session.expires_at for session in self.sessions.values() if session.expires_at > now]
        ends += [end for end in self.mortal.moments.values() if end > now]
        return min(ends, default=None)

    def next_end(self) -> float:
        """When the next session, claim or cell dies, or could be cleared away already."""
        return min(self.session_ends.first(), self.mortal.first(), self.mortal_cells.first())

    def _on_name(self, q: ask.OnName, now: float) -> tuple[Row, ...]:
        if not q.holding:
            return tuple(self.rows_on((q.kind, q.name), now))
        line = self.rivals.line(q.kind, q.name)
        if line is None:
            return ()
        rows: Iterable[Row] = line.holders
        if q.order is not None:
            rows = line.holders.of_order(q.order)
        elif q.most is not None:
            rows = line.holders.after(q.after, q.most, lambda row: self.alive(row, now))
        return self._in_order(rows, now)

    def rows_on(self, key: Name, now: float, most: int | None = None) -> list[Row]:
        """Every live claim on a name, by arrival; only so many, if that is said, and holders before others."""
        line = self.rivals.line(*key)
        rows = islice(line.rows() if line else (), None if most is None else most + MOST_ROWS)
        alive = (row for row in rows if self.alive(row, now))
        return sorted(islice(alive, most), key=arrival)

    def _under(self, q: ask.Under, now: float) -> tuple[Row, ...]:
        names_shown = self.directory.shown(q.kind, q.prefix, ("",))
        return tuple(islice((row for key in names_shown for row in self.rows_on(key, now)), q.limit))

    def _row_by_id(self, q: ask.RowById, now: float) -> tuple[Row, Session] | None:
        row = self.rows.get(q.claim_id)
        return (row, self.sessions[row.claim.session]) if row is not None and self.alive(row, now) else None

    def _cell_now(self, q: ask.CellNow, now: float) -> ask.CellAnswer:
        cell = self.cells.get((q.kind, q.name))
        if cell is not None and cell.expires_at is not None and cell.expires_at <= now:
            cell = None
        return ask.CellAnswer(cell, self.last(q.bucket), bool(self.watches))

    def _watchers(self, q: ask.Watchers, now: float) -> tuple[ask.WatcherAnswer, ...]:
        found = []
        for key, watch in self.mail.hearing(q.kind, q.name):
            session = self.sessions.get(watch.session)
            if session is not None and session.expires_at > now:
                letters = self.letters[key]
                found.append(ask.WatcherAnswer(watch, letters[-1].number if letters else watch.given, len(letters)))
        return tuple(found)

    # Changes

    def put_row(self, row: Row) -> None:
        """The claim is as given."""
        claim = row.claim
        id_, key = claim.id, (claim.kind, claim.name)
        new = id_ not in self.rows
        if new:
            self.claims_of[claim.owner] = self.claims_of.get(claim.owner, 0) + 1
            self.usage.claim(claim, 1)
            mine = self.by_session.get(claim.session)
            if mine is None:
                mine = self.by_session[claim.session] = {}
        else:
            mine = self.by_session[claim.session]
        self.rows[id_] = mine[id_] = row
        self._stand(key, row, new)
        if "/" in claim.name:
            self.looked_at += claim.name.count("/")
            self.rivals.paths.put(row, new)
        if row.dies_at is not None:
            self.mortal.put(id_, row.dies_at)
        elif self.mortal.moments:
            self.mortal.drop(id_)

    def _stand(self, key: Name, row: Row, new: bool) -> None:
        """Let a claim have its place among those on its name."""
        claim = row.claim
        line = self.lines.get(key)
        if line is None:
            only = self.alone.get(key)
            if only is None:
                self.directory.add(key)
            if (only is None and row.token is not None) or (only is not None and not new):
                self.alone[key] = row
                return
            if only is None:
                line = Line()
            else:
                line = Line.of(only)
                del self.alone[key]
            self.lines[key] = line
        if line.put(row, new):
            self.waiting.drop(claim)
        elif row.token is None:
            self.waiting.put(row)

    def drop_row(self, change: ch.DropRow) -> None:
        """The claim is forgotten."""
        claim = change.row.claim
        id_, key = claim.id, (claim.kind, claim.name)
        line = None
        if self.alone.pop(key, None) is None:
            line = self.lines[key]
            if line.drop(change.row):
                self.waiting.drop(claim)
            if not line:
                del self.lines[key]
        if not line:
            self.directory.drop(key)
        if "/" in claim.name:
            self.looked_at += claim.name.count("/")
            self.rivals.paths.drop(self.rows[id_])
        del self.rows[id_]
        self.usage.claim(claim, -1)
        mine = self.by_session[claim.session]
        del mine[id_]
        if not mine:
            del self.by_session[claim.session]
        left = self.claims_of[claim.owner] - 1
        if left:
            self.claims_of[claim.owner] = left
        else:
            del self.claims_of[claim.owner]
        if change.row.dies_at is not None:
            self.mortal.drop(id_)

    def _put_session(self, change: ch.PutSession) -> None:
        session = change.session
        known = self.sessions.get(session.id)
        if known is None:
            self.usage.session(session, 1)
        elif known[3:] != session[3:]:
            assert known.user == session.user, "its claims are counted for that user"
            self.usage.session(known, -1)
            self.usage.session(session, 1)
        self.sessions[session.id] = session
        self.session_ends.put(session.id, session.expires_at)

    def _drop_session(self, change: ch.DropSession) -> None:
        stones = self.tombstones.pop(change.session, {})
        self.usage.forget_tombstones(change.session, stones)
        self.looked_at += len(stones) // 8
        self.mail.drop_session(change.session)
        session = self.sessions.pop(change.session, None)
        if session is not None:
            self.usage.session(session, -1)
        self.session_ends.drop(change.session)

    def _put_counter(self, change: ch.PutCounter) -> None:
        self.counters[change.bucket] = change.last

    def _put_tombstone(self, change: ch.PutTombstone) -> None:
        stone = change.tombstone
        stones = self.tombstones.setdefault(stone.session, {})
        if stone.claim_id not in stones:
            self.usage.tombstone(stone, 1)
        stones[stone.claim_id] = stone

    def _drop_tombstone(self, change: ch.DropTombstone) -> None:
        stone = self.tombstones.get(change.session, {}).pop(change.claim_id, None)
        if stone is not None:
            self.usage.tombstone(stone, -1)

    def _put_cell(self, change: ch.PutCell) -> None:
        cell = change.cell
        key = (cell.kind, cell.name)
        self._forget_cell(key)
        self.usage.cell(cell, 1)
        self.cells[key] = cell
        if cell.expires_at is not None:
            self.mortal_cells.put(key, cell.expires_at)

    def _drop_cell(self, change: ch.DropCell) -> None:
        self._forget_cell((change.kind, change.name))

    def _forget_cell(self, key: Name) -> None:
        former = self.cells.pop(key, None)
        if former is not None:
            self.usage.cell(former, -1)
        self.mortal_cells.drop(key)


_ANSWERS: dict[type, Callable[[Dictionary, Any, float], Any]] = {
    ask.Scene: Dictionary._scene,
    ask.Departure: Dictionary._departure,
    ask.Blocker: lambda self, q, now: self.blocker(q.claim, q.order, now),
    ask.NextWaiting: Dictionary._next_waiting,
    ask.Affected: lambda self, q, now: self.affected(q.claim, now, q.most),
    ask.AffectedBelow: Dictionary._affected_below,
    ask.Permits: lambda self, q, now: self.taken(q.kind, q.name, now),
    ask.Held: Dictionary._held,
    ask.Position: Dictionary._position,
    ask.Busy: Dictionary._busy,
    ask.Line: Dictionary._line,
    ask.WaitingOf: Dictionary._waiting_of,
    ask.Sessions: Dictionary._sessions,
    ask.Beat: Dictionary._beat,
    ask.SessionRows: Dictionary._session_rows,
    ask.Dead: Dictionary._dead,
    ask.NextDeath: Dictionary._next_death,
    ask.OnName: Dictionary._on_name,
    ask.Under: Dictionary._under,
    ask.RowById: Dictionary._row_by_id,
    ask.CellNow: Dictionary._cell_now,
    ask.Counter: lambda self, q, now: self.last(q.bucket),
    ask.Watched: lambda self, q, now: bool(self.watches),
    ask.Watchers: Dictionary._watchers,
    ask.Mailbox: lambda self, q, now: self.mail.unfetched(q),
}

_PUTS: dict[type, Callable[[Dictionary, Any], None]] = {
    ch.PutRow: lambda self, change: self.put_row(change.row),
    ch.DropRow: Dictionary.drop_row,
    ch.PutSession: Dictionary._put_session,
    ch.DropSession: Dictionary._drop_session,
    ch.PutCounter: Dictionary._put_counter,
    ch.PutTombstone: Dictionary._put_tombstone,
    ch.DropTombstone: Dictionary._drop_tombstone,
    ch.PutCell: Dictionary._put_cell,
    ch.DropCell: Dictionary._drop_cell,
    ch.PutWatch: lambda self, change: self.mail.put_watch(change),
    ch.DropWatch: lambda self, change: self.mail.drop_watch(change),
    ch.PutLetter: lambda self, change: self.mail.put_letter(change),
    ch.DropLetters: lambda self, change: self.mail.drop_letters(change),
}
