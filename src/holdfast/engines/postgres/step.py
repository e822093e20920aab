"""One step of the lock table as one PostgreSQL transaction.

Locks are always taken in one order, so that no two steps wait for each other: buckets (ascending),
then the rows of sessions that have to be declared dead, then the namespace's wait lock, then the
letters lock. A step that finds out that it needs more buckets is rolled back and begun again with
all of them: nothing is kept of a step that did not commit.

The bucket makes everybody who can conflict on a name go one after another; rows that do not exist
yet cannot be locked. The wait lock lets a claim that has to queue see every other claim that is
queueing at the same moment, whatever its bucket: a deadlock goes across buckets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from holdfast.core import names
from holdfast.core.table import changes as ch
from holdfast.core.table import commands as cm
from holdfast.core.table import questions as ask
from holdfast.core.table.machine import READS, begin
from holdfast.core.table.rows import Row, Session
from holdfast.core.table.step import WHOLE_LINES, Step
from holdfast.engines.postgres import statements as st
from holdfast.engines.postgres.commits import Commit
from holdfast.engines.postgres.ledger import Ledger
from holdfast.engines.postgres.rows import (
    ANSWERS,
    CHANGES,
    QUESTIONS,
    Asked,
    crosses,
    put_session,
    row_or_none,
    some_row,
)
from holdfast.engines.postgres.schema import LETTERS_LOCK, SWEEP_LOCK, WAIT_LOCK
from holdfast.engines.postgres.wire import Statement, Wire, literal, prepared
from holdfast.model import Claim

_ANY_ORDER = 2**62
_TRY = "SELECT pg_catalog.to_json(pg_catalog.pg_try_advisory_xact_lock({},{}))"
ALL_BUCKETS = frozenset(range(names.BUCKETS))
SWEEP_AGAIN = 0.05
"""When to look again while somebody else clears up, in seconds."""


NO_JUDGES = (cm.Renew, cm.Open, cm.OwnClaims, cm.Subscribe, cm.Unsubscribe, cm.Fetch, cm.RaiseTokens)
"""Commands that look at nobody else's claims."""


class NeedBuckets(Exception):
    """The step touches names whose buckets it has not locked."""

    def __init__(self, buckets: frozenset[int]) -> None:
        self.buckets = buckets
        super().__init__(sorted(buckets))


def planned_buckets(command: cm.Command) -> frozenset[int]:
    """The buckets that a command is known to need. What clears up finds out what it needs."""
    match command:
        case cm.Enter() | cm.Release() | cm.Leave() | cm.HandOver() | cm.Adopt():
            return frozenset({names.bucket(command.claim.name)})
        case cm.Break() | cm.CellSet():
            return frozenset({names.bucket(command.name)})
        case cm.Subscribe() if command.prefix:
            # A step that has not seen the watch has to be over before the watch is said to have begun.
            return frozenset({names.bucket(command.prefix)})
        case cm.RaiseTokens() | cm.Subscribe():
            return ALL_BUCKETS
    return frozenset()


class Message:
    """Statements that travel together."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.parts: list[str] = []
        self.called: list[Statement] = []

    def text(self, sql: str) -> None:
        self.parts.append(sql)

    def lock(self, lock_class: int, numbers: Iterable[int], *more: str) -> None:
        """Take advisory locks until the transaction ends, in this order; `more` is called after them."""
        calls = [f"pg_catalog.pg_advisory_xact_lock({lock_class},{number})" for number in numbers]
        self.parts.append(f"SELECT {','.join([*calls, *more])}")

    def call(self, statement: Statement, values: Iterable[Any]) -> None:
        first = statement.name not in self.wire.prepared and statement not in self.called
        if first:
            self.called.append(statement)
            self.parts.append(prepared(statement))
        arguments = ",".join(map(literal, values))
        self.parts.append(f"EXECUTE {statement.name}({arguments})" if arguments else f"EXECUTE {statement.name}")

    async def send(self, until: float) -> list[Any]:
        parts, called = self.parts, self.called
        self.parts, self.called = [], []
        return await self.wire.send(parts, until, called)


class Attempt:
    """One try at a step, on one wire."""

    def __init__(
        self,
        wire: Wire,
        command: cm.Command,
        buckets: Collection[int],
        lock_class: int,
        ledger: Ledger,
        commit: Commit,
        crowded: bool = False,
    ) -> None:
        self.wire, self.command, self.buckets, self.lock_class = wire, command, buckets, lock_class
        self.ledger, self.commit = ledger, commit
        self.crowded = crowded
        """Whether the claim will probably have to queue."""
        self.message = Message(wire)
        self.step: Step
        self.reads = type(command) in READS
        self.flushed = True
        """Whether the commit waits until it is on disk, and everything before it too."""
        self.something_died = False
        """A heartbeat saw that there is something to clear up."""
        self._foreseen: list[tuple[ask.Question, Any]] = []
        """Answers that came with an earlier one; good until something is written."""
        self._done = 0
        self._first = True
        self._taken: set[int] = set()

    async def run(self, until: float) -> cm.Reply:
        """Ask, decide, write, commit. After this the notices may be let out."""
        self.step, generator = begin(self.command, 0.0, 0.0, names.BUCKETS, meter=WHOLE_LINES)
        if not self.reads:
            self._begin()
        try:
            question = next(generator)
            while True:
                self._write_changes()
                question = generator.send(await self._answer(question, until))
        except StopIteration as stop:
            reply: cm.Reply = stop.value
        if not self.reads:
            await self._commit(until)
        return reply

    def _begin(self) -> None:
        """The locks that are known to be needed."""
        self.message.text("BEGIN")
        if self.buckets:
            self._lock(*sorted(self.buckets))
        match self.command:
            case cm.Renew() | cm.Open():
                # Its own row first, then the clock: see `sessions.ended`. No bucket, so no order to keep.
                id_ = self.command.session if isinstance(self.command, cm.Renew) else self.command.session.id
                self.message.call(st.LOCK_SESSION, (id_,))

    def _lock(self, *numbers: int) -> None:
        missing = [number for number in numbers if number not in self._taken]
        if missing:
            self._taken.update(missing)
            self.message.lock(self.lock_class, missing)

    def _write_changes(self) -> None:
        changes = self.step.changes
        if self._done < len(changes):
            self._foreseen.clear()
        while self._done < len(changes):
            for statement, values in self._written(changes[self._done]):
                self.message.call(statement, values)
            self._done += 1

    def _written(self, change: ch.Change) -> list[Asked]:
        now = self.step.now
        if isinstance(change, ch.DropSession | ch.DropWatch):
            # Whoever writes letters has this lock, and would write to a watch that is going.
            self._lock(LETTERS_LOCK)
        if isinstance(change, ch.PutSession):
            # At the end of a session it was done before, in a transaction of its own.
            return [] if isinstance(self.command, cm.Close) else [put_session(change, self.ledger.channel)]
        if isinstance(self.command, cm.Sweep) and isinstance(change, ch.DropCell):
            return [(st.DROP_DEAD_CELL, (change.kind, change.name, now))]
        return CHANGES[type(change)](change, now)

    async def _answer(self, question: ask.Question, until: float) -> Any:
        for known, answer in self._foreseen:
            if known == question:
                return answer
        match question:
            case ask.Busy() | ask.WaitingOf():
                self._lock(WAIT_LOCK)
            case ask.Watchers():
                self._lock(LETTERS_LOCK)
            case ask.Dead():
                if isinstance(self.command, cm.Renew):
                    return ask.DeadAnswer((), (), ())  # cleared up afterwards, in a transaction of its own
                self.message.call(st.BOUND_TIMES, ())
                self.message.text(_TRY.format(self.lock_class, SWEEP_LOCK))
        foreseen = self._foreseeable(question)
        found = await self._send([question, *foreseen], until)
        if foreseen:
            found, more = found[:1], found[1:]
        now, stale, *items = found[-1]
        if self._first and stale and not isinstance(self.command, NO_JUDGES):
            if foreseen:
                raise NeedBuckets(frozenset())  # the wait lock comes after the marks: once more, in order
            # Whoever looks at others must not count the dead: they are declared so, and the question is asked again.
            self.message.call(st.MARK_DEAD, ())
            now, _, *items = (await self._send([question], until))[-1]
        if self._first:
            self.step.now = self.step.wall = now
            self._first = False
        match question:
            case ask.Scene():
                await self._foresee(question, items, list(zip(foreseen, more, strict=True)) if foreseen else [], until)
            case ask.Departure() if self.reads and items[1] is not None and not question.claim.limit:
                await self._foresee_place(question.claim, some_row(items[1]), until)
            case ask.NextWaiting() if items[0] is not None:
                row = some_row(items[0])
                if not crosses(row.claim):
                    self._foreseen.append((ask.Blocker(row.claim, row.order), row_or_none(items[1])))
            case ask.Dead():
                if not found[0]:
                    return ask.DeadAnswer((), (), ())
                self._need(items.pop())
            case ask.SessionRows() if not self.reads:
                self._need(values[4] for values in items[0])
            case ask.NextDeath():
                self.something_died = bool(items[1])
        return ANSWERS[type(question)](question, items)

    async def _send(self, questions: Sequence[ask.Question], until: float) -> list[Any]:
        for question in questions:
            statement, values = QUESTIONS[type(question)](question)
            self.message.call(statement, (None if self._first else self.step.now, *values))
        return await self.message.send(until)

    def _foreseeable(self, question: ask.Question) -> list[ask.Question]:
        """What a claim on a name that many want will ask next: it is sent along, behind the wait lock."""
        if not self.crowded or not isinstance(question, ask.Scene) or not self._first or not question.claim.waits:
            return []
        self._lock(WAIT_LOCK)
        return _about_queueing(question.claim, _ANY_ORDER)

    async def _foresee(
        self, scene: ask.Scene, items: list[Any], known: list[tuple[ask.Question, list[Any]]], until: float
    ) -> None:
        """A claim that has to queue will ask three more things: one came with the scene, two in one round trip."""
        found: ask.SceneAnswer = ANSWERS[ask.Scene](scene, items)
        claim = scene.claim
        if not claim.limit and items[5] is not None:
            blocking = Session(*items[5][1])
            self._foreseen.append((ask.Sessions((blocking.id,)), {blocking.id: blocking}))
        elsewhere = found.row is not None or found.tombstone is not None or not self.step.alive(found.session)
        if (found.blocker is None and not found.permits) or elsewhere or not claim.waits:
            return
        if not known:
            self._lock(WAIT_LOCK)
            asked = _about_queueing(claim, _ANY_ORDER)
            known = list(zip(asked, await self._send(asked, until), strict=True))
        (busy, busy_answer), (_, place_answer) = known
        self._foreseen.append((busy, busy_answer[2]))
        # Nobody has a higher number than the one it will get.
        self._foreseen.append((ask.Position(claim.kind, claim.name, found.last + 1), place_answer[2]))

    async def _foresee_place(self, claim: Claim, row: Row, until: float) -> None:
        """Who looks how a claim stands in line asks two more things: both in one round trip."""
        if row.token is None:
            asked: list[ask.Question] = [ask.Position(claim.kind, claim.name, row.order), ask.Blocker(claim, row.order)]
            for question, (_, _, *answer) in zip(asked, await self._send(asked, until), strict=True):
                self._foreseen.append((question, ANSWERS[type(question)](question, answer)))

    def _need(self, touched: Iterable[str]) -> None:
        missing = {names.bucket(name) for name in touched}.difference(self.buckets)
        if missing:
            raise NeedBuckets(frozenset(missing))

    async def _commit(self, until: float) -> None:
        self._write_changes()
        told = {(each.session, f"{each.what} {each.subject}"): None for each in self.step.notices}
        for session, text in told:
            # Sessions of this client are told without the server's help.
            if session not in self.ledger.own:
                self.message.call(st.NOTIFY, (session, text))
        changes = self.step.changes
        if not self.step.notices and (_only_ends(changes) or _only_queues(changes)):
            self.flushed = False
            self.message.text("SET LOCAL synchronous_commit = off")
        self.message.text("COMMIT")
        if changes:
            self.commit.sending(self.wire)
        await self.message.send(until)


def _about_queueing(claim: Claim, order: int) -> list[ask.Question]:
    return [ask.Busy(claim.owner, claim.id), ask.Position(claim.kind, claim.name, order)]


def _only_ends(changes: Sequence[ch.Change]) -> bool:
    """Whether nothing is given. Should the server crash before it is on disk, it is done again: see `Unflushed`."""
    return bool(changes) and all(type(change) is ch.DropRow for change in changes)


def _only_queues(changes: Sequence[ch.Change]) -> bool:
    """Whether a claim only takes its place in line. After a crash that forgot it, the waiter finds out and comes again;

    the number that it had was nobody's token, and every token is on disk before it is told.
    """
    return [type(change) for change in changes] == [ch.PutCounter, ch.PutRow] and _in_line(changes[1])


def _in_line(change: ch.Change) -> bool:
    return isinstance(change, ch.PutRow) and change.row.token is None
