"""The lock table as a service: runs commands on it, tells who is concerned, and clears away the dead."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.core.table import Dictionary, commands, shortcuts
from holdfast.core.table.changes import Change, DropRow, DropSession, PutCounter, PutRow
from holdfast.core.table.commands import GONE, GRANTED, LETTER, Command, Notice
from holdfast.core.table.lines import DONE, granted
from holdfast.core.table.machine import begin
from holdfast.core.table.questions import Question
from holdfast.core.table.rows import Row
from holdfast.core.table.step import Bounds, Step
from holdfast.model import Claim, Gone, Granted, Refused
from holdfast.server import answers
from holdfast.server.attachments import Attachments
from holdfast.server.batches import FULL, Batches
from holdfast.server.complaints import Complaints
from holdfast.server.continuation import Continuation
from holdfast.server.deaths import NEVER, Deaths
from holdfast.server.gathering import Gathering
from holdfast.server.held_back import HeldBack
from holdfast.server.limits import Limits
from holdfast.server.pipelines import Pipelines
from holdfast.server.quotas import Quotas
from holdfast.server.resp import OVER
from holdfast.server.store import Store, StoreFull
from holdfast.server.tally import Tally
from holdfast.server.terms import TermsReader
from holdfast.server.unread import Unread
from holdfast.server.users import User, Users
from holdfast.server.waits import Waits
from holdfast.server.wire_error import WireError, may_not_read

if TYPE_CHECKING:
    from holdfast.server.cluster.node import Node
    from holdfast.server.connection import Connection

log = logging.getLogger("holdfast.server")

STOPPING = WireError("HFSTOPPING", "the server is stopping: come back in a moment")
NOBODY_LEADS = WireError("NOTLEADER", "? nobody leads at the moment: come back in a moment")
WAITED = "its wait is over"
MOST_COST_A_TURN = 4_000
"""What all requests of one turn of the loop may cost the table: about 10 ms."""
WORK_PER_STEP = 256
"""Claims that one step grants or removes for others than its asker. The rest follows in later turns."""
LOOKS_PER_STEP = 4_000
"""Rows that one step looks at before it leaves the rest to later turns."""
LETTERS_AT_ONCE = 1_000
"""Events in one answer."""
Answer = Callable[[Question, float], Any]


@dataclass(frozen=True, slots=True)
class About:
    """Who this server is."""

    version: str
    instance: str
    """Another one after every start."""
    store: str
    """The scheme of its store."""
    durable: bool
    replicated: bool = False


class Service:
    """One table, all who use it, and the store behind it."""

    time_of_day = staticmethod(time.time)

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        users: Users,
        about: About,
        broken: Callable[[Exception], None],
    ) -> None:
        self.store, self.loop = store, loop
        self.set_rules(limits, users)
        self.about, self.broken = about, broken
        self.started = time.monotonic()
        self.tally = Tally()
        self.complaints = Complaints()
        self.connections: set[Connection] = set()
        self.attachments = Attachments()
        self.quotas = Quotas(self)
        self.waits = Waits(loop, self.wait_over, self.fetch_now, self._wait_stopped, lambda: self.cost)
        self.unread = Unread(self)
        self.batches = Batches(store, loop, self.tally, self._end_turn, self.unread.told, self._refused, broken)
        self.pipelines = Pipelines(self.batches)
        self.gathering = Gathering(self)
        self.held_back = HeldBack(self)
        self.unfinished = 0
        """Bytes of requests that have not arrived completely."""
        self.stopping = False
        self.node: Node | None = None
        """This server's part in a cluster, if there is one."""
        self.alone: asyncio.Event | None = None
        """Set, where somebody waits for it, when the last connection has ended."""
        self.now = 0.0
        self.is_spent = False
        """Whether a request of this turn of the loop took long: others that may do so come later."""
        self._questions, self._turn_ends_at = 0, MOST_COST_A_TURN
        """How many the table has asked, and what may have been spent when the turn is over."""
        self._alarm: asyncio.TimerHandle | None = None
        self.continuation = Continuation(self)
        self.elsewhere: WireError | None = NOBODY_LEADS
        """Why this server carries out no commands about locks; None while it does."""
        self._use(Dictionary())

    def set_rules(self, limits: Limits, users: Users) -> None:
        """Let these count from now on."""
        self.limits, self.users = limits, users
        self.terms = TermsReader(limits)
        self._bounds = Bounds(WORK_PER_STEP, WORK_PER_STEP, limits.search, LOOKS_PER_STEP)

    def begin(self) -> None:
        """Load the table, and carry out commands from now on."""
        self._load()
        self.elsewhere = None
        self.continuation.expect()
        self._allow()

    def redirect(self, leader: str | None) -> None:
        """Another server leads: clients are told where."""
        self.elsewhere = NOBODY_LEADS if leader is None else WireError("NOTLEADER", f"{leader} the leader is there")

    def retire(self) -> None:
        """Another server leads, or may: nobody is answered any more, and all is forgotten that was not kept."""
        self.elsewhere = NOBODY_LEADS
        self.gathering.forget()
        for connection in list(self.connections):
            self.waits.ended(connection)
            self.attachments.detach(connection)
            connection.abort()
        self._use(Dictionary())
        self.waits.reconcile({}, ())
        self.batches.abandon()
        self._allow()

    def _allow(self) -> None:
        for connection in self.connections:
            connection.allow()

    def _load(self) -> None:
        self._use(self.store.load())

    def _use(self, table: Dictionary) -> None:
        self.table = table
        self.continuation.begin(self.table)
        self.deaths = Deaths(self.table)
        self.deaths.look()
        self._arm()

    def _refused(self, error: StoreFull) -> None:
        """A batch was not kept: go back to what was."""
        log.warning("batch refused, loading the table again", extra={"problem": str(error)})
        self.tally.refused_batches += 1
        self._load()
        for connection in self.waits.reconcile(self.table.rows, self.table.watches):
            connection.answer(FULL)
        for claim_id in self.waits.blocked():
            row = self.table.rows[claim_id]
            blocked = self.waits.decided(claim_id) if row.token is not None else None
            if blocked is not None:
                # It was released and asked for again, and nothing of that was kept: it holds what it held.
                blocked.answer(answers.encode(self.step(commands.Look(row.claim)), blocked.resp, blocked.user))
        for session in self.attachments.sessions():
            if session not in self.table.sessions:
                self.end_session(session, "it was not kept: the disk is full")

    def _wait_stopped(self, claim_id: str, since: float | None, until: float) -> None:
        """Nobody waits for the claim any more, unless what was decided is not kept."""

        def undo() -> None:
            row = self.table.rows.get(claim_id)
            if row is not None and row.token is None:
                self.waits.again(claim_id, since, until)

        self.batches.undo.append(undo)

    def _attach_again(self, connection: Connection, session: str, user: User) -> None:
        """The end of a session was not kept: who spoke for it does, unless somebody else does by now."""
        taken = any(other.side == connection.side for other in self.attachments.of(session))
        same = not connection.closing and not connection.session and connection.user is user
        if same and not taken and session in self.table.sessions:
            self.attachments.attach(connection, session, connection.side, connection.quiet)

    def uptime(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def stop(self, come_back_ms: int) -> None:
        """Take no more commands, and tell those who wait to come back."""
        self.gathering.carry_out()
        self.stopping = True
        self.batches.gather()
        for connection in list(self.connections):
            connection.allowed = {}
            if connection.held:
                self.waits.ended(connection)
                connection.answer(connection.error(STOPPING))
            connection.push("hf.bye", come_back_ms)

    # Time

    def _end_turn(self) -> None:
        self.gathering.carry_out()
        self.is_spent = False
        self._turn_ends_at = self.cost + MOST_COST_A_TURN
        self.pipelines.begin_turn()

    @property
    def cost(self) -> int:
        """What commands have cost the table, whatever the machine is busy with: questions, and rows looked at."""
        return self._questions + self.table.looked_at // 2

    @property
    def is_exhausted(self) -> bool:
        """Whether the commands of this turn have cost so much that others which may do so have to wait."""
        return self.cost >= self._turn_ends_at or self.batches.is_behind

    def charge(self, cost: int) -> None:
        """Something beside the table has cost as much as so many of its questions."""
        self._questions += cost

    @property
    def has_much_to_say(self) -> bool:
        """Whether so much waits to be let out that no more of it is made, by whoever that is."""
        return self.batches.unsaid >= self.limits.total_output // 4

    @property
    def has_shown_enough(self) -> bool:
        """Whether what may say much has to wait for another turn."""
        return self.is_spent or self.batches.has_said_much or self.has_much_to_say

    def begin_turn(self) -> float:
        """The time for the commands that come now. Whoever has died is taken out first, in the same batch:
        nobody is granted what a dead one held while the store could still bring it back to life."""
        self.now = now = self.store.now()
        self.batches.gather()
        # One that stops has nothing to give to others, and may have given back its right to write.
        if now >= self.deaths.due and not self.stopping and not self.batches.is_behind:
            try:
                self.sweep()
            except Exception as error:
                # Nobody's request: it would fail again with every turn, and the dead would hold their locks.
                self.broken(error)
                raise
        return now

    def sweep(self) -> None:
        """Clear away a bounded number of the dead."""
        done, changes = self.run(commands.Sweep(self.work_per_step), self.table.answer)
        self.batches.urgent = self.batches.urgent or bool(changes)
        for change in changes:
            if type(change) is DropRow:
                self.tally.expired(change.row)
                self.waits.forget(change.row.id)
            elif type(change) is DropSession:
                log.info("session ended", extra={"session": change.session})
                self.end_session(change.session, "it ran out, or was closed")
        if done.more:
            self.deaths.due = self.now
        else:
            self.deaths.look()
        self._arm()

    def _arm(self) -> None:
        """See to it that the next death is noticed even if nobody says anything."""
        if self._alarm is not None:
            self._alarm.cancel()
        due = self.deaths.due
        self._alarm = None if due == NEVER else self.loop.call_later(max(0.0, due - self.store.now()), self._wake)

    def _wake(self) -> None:
        if self.batches.is_behind:
            self.batches.when_begun(self._wake)
            return
        self.begin_turn()
        if self.now < self.deaths.due:
            self._arm()

    def expect_death(self, moment: float | None) -> None:
        """A session or claim may die then."""
        if moment is not None and moment < self.deaths.due:
            self.deaths.expect(moment)
            self._arm()

    # Commands

    def step(self, command: Command) -> Any:
        """Run one command of a client; its reply may go out with this batch."""
        reply, changes = self.run(command, self.deaths.answer)
        if changes:
            self.batches.urgent = True
        return reply

    def enter(self, claim: Claim) -> Any:
        """Run an acquire, in the short way if it can be."""
        done: list[PutRow | DropRow] = []
        self.step_plainly(((claim.session, claim.id, claim),), done)
        return Granted(done[0].row.order, None, claim.max_hold) if done else self.step(commands.Enter(claim))

    def release(self, row: Row) -> Any:
        """The same for a release."""
        claim = row.claim
        done: list[PutRow | DropRow] = []
        self.step_plainly(((claim.session, claim.id, None),), done)
        return DONE if done else self.step(commands.Release(claim))

    def step_plainly(self, steps: Iterable[shortcuts.Plain], done: list[PutRow | DropRow]) -> None:
        """Take as many of these steps, from the first on, as can be taken in the short way.

        `done` gets what each of them did. If it fails half-way, store and table still agree on that.
        """
        batches, last = self.batches, self.table.last(0)
        try:
            shortcuts.carry_out(self.table, steps, self.now, done)
        finally:
            if done:
                number = self.table.last(0)
                if number > last:
                    batches.changes.append(PutCounter(0, number))
                batches.changes += done
                batches.urgent = True
                self.pipelines.did(len(done))

    def step_lazily(self, command: Command) -> Any:
        """The same for a heartbeat: what it changes is kept with the next batch, whenever that is."""
        return self.run(command, self.deaths.answer)[0]

    def run(self, command: Command, answer: Answer) -> tuple[Any, list[Change]]:
        """Drive a step of the table. If it fails half-way, store and table still agree on what was done."""
        now = self.now
        put = self.table.put
        step, generator = begin(command, now, self.time_of_day(), bounds=self._bounds, meter=self.table)
        changes = step.changes
        done = 0
        try:
            question = next(generator)
            while True:
                self._questions += 1
                if done < len(changes):
                    for change in changes[done:]:
                        put(change)
                    done = len(changes)
                question = generator.send(answer(question, now))
        except StopIteration as stop:
            for change in changes[done:] if done else changes:
                put(change)
            self.batches.changes += changes
            self._questions += step.cost
            for notice in step.notices:
                self.tell(notice)
            if step.rest:
                self.continuation.add(step.rest)
            return stop.value, changes
        except BaseException:
            self.batches.changes += changes[:done]
            self.batches.urgent = True
            raise

    @property
    def work_per_step(self) -> int:
        """How many claims one step removes or breaks: fewer where each is told to many watches."""
        return WORK_PER_STEP * 4 // (4 + len(self.table.mail.wide))

    def need_room(self) -> None:
        """Refuse what makes the store grow while it cannot."""
        if not self.store.has_room():
            raise WireError("HFFULL", "the disk is full: only what frees room is taken, try again later")

    # Those who are concerned

    def tell(self, notice: Notice) -> None:
        """Tell a session what happened to its claim or watch, by a reply that waits for it or by a push."""
        subject = notice.subject
        if notice.what == LETTER:
            self._make_room_for_letters()
            if not self.fetch_now(notice.session, subject):
                self.push(notice.session, "hf.letter", notice.session, subject)
            return
        blocked = self.waits.decided(subject)
        if notice.what == GRANTED:
            row = self.table.rows[subject]
            self.expect_death(row.dies_at)
            self.tally.granted_from_line(self.waits.since(subject), self.now)
            reply = granted(Step(self.now, self.time_of_day(), 1), row)
            if blocked is not None:
                blocked.answer(answers.encode(reply, blocked.resp, blocked.user, blocked.chosen))
            else:
                self.push(notice.session, "hf.granted", subject, *answers.granted(reply))
            return
        assert notice.what == GONE
        stone = self.table.tombstones.get(notice.session, {}).get(subject)
        self.gone(notice.session, subject, stone.reason if stone else "it is no longer held", blocked)

    def _make_room_for_letters(self) -> None:
        """End the watches that are furthest behind while there are too many events that nobody fetches."""
        mail, limit = self.table.mail, self.limits.letters
        while mail.count > limit:
            session, watch = mail.furthest_behind(self.table.sessions)
            log.warning("a watch is too far behind: ended", extra={"session": session, "letters": mail.count})
            self.step(commands.Unsubscribe(session, watch))
            self.push(session, "hf.letter", session, watch)

    def gone(self, session: str, claim_id: str, reason: str, blocked: Connection | None) -> None:
        """Say that a claim is no longer there."""
        if blocked is not None:
            blocked.answer(answers.encode(Gone(reason), blocked.resp, blocked.user))
        else:
            self.push(session, "hf.gone", claim_id, reason)

    def push(self, session: str, *parts: Any) -> None:
        """Say something to the connections of a session."""
        for connection in self.attachments.of(session):
            connection.push(*parts)

    def attach(self, connection: Connection, session: str, side: bool, quiet: bool) -> None:
        """Let a connection speak for a session; whoever did so in this role before is closed first."""
        former = self.attachments.attach(connection, session, side, quiet)
        if former is not None:
            self.waits.ended(former)
            former.push("hf.detached", session, "another connection speaks for it now")
            former.close_after_output()

    def end_session(self, session: str, reason: str) -> None:
        """The session is no more: nobody speaks for it, and whoever waits under it is told."""
        for connection in self.attachments.end(session):
            self.batches.undo.append(partial(self._attach_again, connection, session, connection.user))
            if self.waits.ended(connection):
                connection.answer(OVER)
            connection.push("hf.over", session, reason)

    def wait_over(self, claim_id: str) -> None:
        """A claim has stood in line for as long as it wanted."""
        if self.stopping:
            # Whoever waits was told to come back, and ends its wait elsewhere: nothing is written here any more.
            return
        self.begin_turn()
        row: Row | None = self.table.rows.get(claim_id)
        blocked = self.waits.decided(claim_id)
        if row is None or row.token is not None:
            if row is None and blocked is not None:
                # This turn began with clearing its session away, and that is not done with yet.
                blocked.answer(answers.encode(Gone("its session ran out"), blocked.resp, blocked.user))
            return
        place = self.step(commands.Look(row.claim))
        self.withdraw(row.claim)
        if blocked is not None:
            blocker = getattr(place, "blocker", None)
            blocked.answer(answers.encode(Refused(blocker), blocked.resp, blocked.user))
        else:
            self.gone(row.claim.session, claim_id, WAITED, None)

    def fetch_now(self, session: str, watch: str) -> bool:
        """Answer who waits for events of this watch, with what there is; whether somebody does."""
        waiting = self.waits.letter(session, watch)
        if waiting is None:
            return False
        connection, after = waiting
        self.batches.gather()
        subject = self.table.watches.get((session, watch))
        if subject is not None and not connection.user.may_read(subject.prefix):
            # It was allowed to when it began to wait; the configuration was read again since.
            connection.answer(connection.error(may_not_read(subject.prefix)))
            return True
        letters = self.fetch(session, watch, after)
        connection.answer(answers.encode(letters, connection.resp, connection.user))
        return True

    def fetch(self, session: str, watch: str, after: int) -> Any:
        """The events of a watch after a number, the first of them if they are many."""
        reply = self.step(commands.Fetch(session, watch, after))
        if isinstance(reply, commands.Letters) and len(reply.events) > LETTERS_AT_ONCE:
            # They are numbered without a gap.
            left = len(reply.events) - LETTERS_AT_ONCE
            return commands.Letters(reply.events[:LETTERS_AT_ONCE], reply.last - left, reply.overflowed)
        return reply

    def withdraw(self, claim: Claim, unanswered: bool = False) -> Any:
        """Take a claim out, whatever became of it."""
        self.waits.forget(claim.id)
        return self.step(commands.Leave(claim, unanswered))
