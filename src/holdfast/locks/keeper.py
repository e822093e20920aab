"""The keeper: what a client does in the background, all of it in one thread.

It opens the session and keeps it alive, hears the engine's notices, tells holders what they
have lost, withdraws claims whose withdrawal could not be confirmed in time, and helps to
clear away what has died while somebody here waits. It is a coroutine like every recipe, so
the simulator drives it too.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core import deadline as deadlines
from holdfast.core.backoff import full_jitter
from holdfast.core.table import rows
from holdfast.core.table.commands import GONE, MISSED, RECONNECTED, SHORTENED, Notice, Renewed, SessionOver
from holdfast.engines.engine import Verbs
from holdfast.errors import EngineUnavailable, HoldfastError
from holdfast.locks.ending import Ending
from holdfast.locks.errand import Errand
from holdfast.locks.grant_check import GrantCheck
from holdfast.locks.session import Session
from holdfast.locks.unsettled import SECOND_LOOK
from holdfast.model import Claim
from holdfast.runtime.io import Signal

if TYPE_CHECKING:
    from holdfast.locks.client import Client

log = logging.getLogger("holdfast")

NEVER = float("inf")
RAN_OUT = "its session ran out at the engine"
FIRST_REST, LAST_REST = 0.02, 1.0
"""Between sessions that end as soon as they are opened."""
MOST_CALM = 0.8
MOST_UNWATCHED = 2.0
"""While somebody waits: sessions that come later are known after this time."""


@dataclass
class Withdrawal:
    """A claim that may still be there and must go."""

    claim: Claim
    unanswered: bool
    due: float = 0.0
    pauses: Iterator[float] | None = None


class Keeper:
    """Keeps one client's session. Everything here runs in the keeper's thread unless it says otherwise."""

    def __init__(self, client: Client, verbs: Verbs, stalled: Callable[[], float]) -> None:
        self._client = weakref.ref(client)
        """Weak: a client that nothing else refers to was forgotten, and is ended."""
        self._in_use: Client | None = client
        """The client, while the keeper is awake, and for ever once it was forgotten."""
        self.verbs, self.io = verbs, verbs.io
        self.stalled = stalled
        """For how many seconds the client's event loop has not turned."""
        self.stopping = False
        self.failed = False
        """Whether it ended by an error of its own."""
        self.done = client.io.signal()
        self.started = False
        """Whether its thread was started."""
        self._runs = False
        self.thread: threading.Thread | None = None
        """Where it runs; None in a simulated world."""
        self._parking = self._parked = False
        """Whether its thread is to end, and whether it has ended, because the process is about to fork."""
        self._gate = threading.Lock()
        self.wanted: deque[Signal] = deque()
        """Who waits for a session to be opened."""
        self.failure: HoldfastError | None = None
        """Why the session that was wanted last could not be opened."""
        self.trouble: HoldfastError | None = None
        """What the engine last failed at, until it answers again."""
        self.withdrawals = client.withdrawals
        self._beat_at = NEVER
        self._sweep_at = NEVER
        self._shortened: Notice | None = None
        """The last word of the engine that it grants a session less."""
        self._sleeps_until = NEVER
        """When the keeper wakes by itself; never, as far as others know, while it is awake or about to sleep."""
        self._calm = 0.0
        """How long to leave the engine alone between sweeps: grows while they find nothing."""
        self._opened = self._open_at = -NEVER
        """When the session was opened, and when the next one may be."""
        self._look_at = -NEVER
        """When to look for what ended calls have left."""
        self._rests = full_jitter(FIRST_REST, LAST_REST, self.io.uniform)
        self._grant_check = GrantCheck(self)
        self.ending = Ending(self)

    @property
    def client(self) -> Client:
        """The client, to one that refers to it, or in the keeper's thread while that is awake."""
        client = self._in_use or self._client()
        assert client is not None
        return client

    # From any thread

    def keep_forgotten(self, client: Client) -> None:
        """Nothing but this keeper refers to its client any more."""
        self.ending.forgotten = client
        self.verbs.bell.set()

    def want_session(self, signal: Signal) -> None:
        """Ask for a session; the signal is set when there is one, or when that failed."""
        self.wanted.append(signal)
        self.verbs.bell.set()
        if self.failed:
            signal.set()  # nobody is there to see it

    def beat_soon(self) -> None:
        """Ask for a heartbeat now: it brings the reasons for what is gone."""
        self._beat_at = 0.0
        self.verbs.bell.set()

    def sweep_soon(self) -> None:
        """Somebody here has begun to wait: find out when what it waits for can die."""
        due = self._sweep_at = min(self._sweep_at, self.io.now() + self._calm)
        # On a lock that many want this is called for every grant. A keeper that wakes in time anyway is left alone.
        if due < self._sleeps_until:
            self.verbs.bell.set()

    def withdraw(self, claim: Claim, unanswered: bool) -> None:
        """Withdraw a claim, for as long as it takes: until it is confirmed or the session has ended."""
        self.withdrawals.append(Withdrawal(claim, unanswered or claim.id in self.client.doubtful))
        self.verbs.bell.set()

    def add_errand(self, errand: Errand) -> None:
        """Do this now and then, from now on. It stays with the client, whatever becomes of its keeper."""
        self.client.errands.append(errand)
        self.verbs.bell.set()

    def drop_errand(self, errand: Errand) -> None:
        """Do it no more. One that is under way ends by itself."""
        # Two may drop it at once.
        with suppress(ValueError):
            self.client.errands.remove(errand)

    def stop(self) -> None:
        """Ask the keeper to end."""
        self.stopping = True
        self.verbs.bell.set()

    def park(self) -> None:
        """Ask for the end of the keeper's thread, between two pieces of work; the keeper itself goes on later."""
        self._parking = True
        self.verbs.bell.set()

    def leave_park(self) -> bool:
        """Take the request back; whether the thread has ended and has to be started again."""
        with self._gate:
            self._parking, parked = False, self._parked
            self._parked = False
            return parked

    def fell(self, error: Exception) -> None:
        """The keeper has ended by an error. Nothing is renewed any more: say so at once."""
        self.client.keeper = None
        self.fail(error)
        if self.client.session is not None and self.client.session.over is None:
            self.end(self.client.session, f"its keeper failed: {error!r}")
        self.done.set()

    # In the keeper's thread

    async def run(self) -> None:
        """Keep the session until the client is closed."""
        bell, parked = self.verbs.bell, False
        with self._gate:
            if self._runs:
                return  # it was started twice
            self._runs = True
        try:
            while not self.stopping:
                due = self.next_due()
                self._sleeps_until = NEVER if due is None else due
                self._in_use = self.ending.forgotten
                await self.io.wait(bell, due)
                # Between the end of the last reference and the client's last word there is neither.
                while (client := self.ending.forgotten or self._client()) is None:
                    await self.io.wait(bell, self.io.now() + FIRST_REST)
                self._in_use = client
                del client
                self._sleeps_until = NEVER
                bell.clear()
                if parked := self._parking and self._parks():
                    return
                await self.work()
                self.ending.look()
            await self.ending.finish()
        except Exception as error:
            log.exception("%s: the keeper failed", self.client)
            self.fell(error)
            raise
        finally:
            self._runs = False
            if not parked:
                self.done.set()

    def _parks(self) -> bool:
        """Whether the thread still has to end. If so, it ends, and `leave_park` knows."""
        with self._gate:
            self._parked = self._parking
            return self._parked

    def fail(self, error: Exception) -> None:
        """Tell those who wait for a session that none will come from here."""
        self.failure = EngineUnavailable(str(self.client), f"its keeper failed: {error!r}", "not done")
        self.failed = True
        while self.wanted:
            self.wanted.popleft().set()

    def next_due(self) -> float | None:
        """When there is something to do even if nobody rings."""
        due = min(self._beat_at, self._sweep_at if self.client.waiting else NEVER)
        due = min([due, *(late.due for late in self.withdrawals), *(one.due for one in self.client.errands)])
        due = min(due, self._open_at if self.wanted else NEVER)
        session = self.client.session
        if session is not None and session.over is None:
            if self.client.unsettled.any_seen():
                due = min(due, self._look_at)
            due = min([due, session.deadline, *(hold.ends for hold in list(session.mortal.values()))])
        return None if due == NEVER else due

    async def work(self) -> None:
        """Do all that is due."""
        session = self.client.session
        if session is not None and session.over is None:
            self.find_lost(session)
        if self.wanted and self.io.now() >= self._open_at:
            await self.open_session()
        await self.keep_alive()
        await self._grant_check.run()
        if self.client.waiting and self.io.now() >= self._sweep_at:
            await self.sweep()
        self.withdraw_abandoned()
        await self.withdraw_late()
        await self.run_errands()

    def withdraw_abandoned(self) -> None:
        """Withdraw what calls and `with` blocks have left that an interrupt has ended."""
        now, unsettled = self.io.now(), self.client.unsettled
        if now < self._look_at:
            return
        for entry in unsettled.abandoned(SECOND_LOOK):
            if self.client.drop(entry):
                log.debug("%s: withdrawing what an interrupted call has left: %r", self.client, entry.claim.name)
                self.withdraw(entry.claim, unanswered=True)
            unsettled.withdrawn(entry)
        self._look_at = now + SECOND_LOOK

    async def run_errands(self) -> None:
        """Do what is due for the fronts, and never delay a heartbeat by it."""
        for errand in [errand for errand in self.client.errands if errand.due <= self.io.now()]:
            if self.stopping:
                return
            try:
                await errand.work(self)
            except HoldfastError as error:
                log.debug("%s: %s could not be done: %s", self.client, errand, error)
            errand.due = self.io.now() + errand.every
            await self.keep_alive()

    async def session_now(self) -> Session:
        """The session, opened here if there is none, for an errand that needs one."""
        await self.open_session()
        session = self.client.session
        if session is None or session.over is not None:
            raise self.failure or EngineUnavailable(str(self.client), "the session ended as it was opened", "not done")
        return session

    async def keep_alive(self) -> None:
        """Send the heartbeat if it is due, and say what is lost; nothing is due without a session."""
        session = self.client.session
        if session is None or session.over is not None:
            self._beat_at = self._sweep_at = NEVER
            return
        if self.io.now() >= self._beat_at:
            await self.beat(session)
        if session.over is None:
            self.find_lost(session)

    async def open_session(self) -> None:
        """Open a session for those who want one."""
        waiting = [self.wanted.popleft() for _ in range(len(self.wanted))]
        if self.client.session is None or self.client.session.over is not None:
            try:
                self.client.session = session = await self.new_session()
                self.shorten(session)
                self.failure = self.trouble = None
                if self.client.closed:
                    # It was closed while this was being opened, and nobody else would end it.
                    session.end("the client was closed", self.io.now())
                    await self.verbs.close_session(session.id, self.before_beat())
            except HoldfastError as error:
                self.failure = self.trouble = error
            except BaseException:
                # It ends by this: whoever waits is told why as it does.
                self.wanted.extend(waiting)
                raise
        for signal in waiting:
            signal.set()

    async def new_session(self) -> Session:
        client = self.client
        row = rows.Session(client.session_id(), client.ttl, 0.0, client.app, client.host, client.pid)
        sent = self.io.now()
        reply = await self.verbs.open_session(row, sent + client.call_limit)
        if isinstance(reply, SessionOver):
            # Opened, unanswered, and over before it was asked again: a short ttl on a bad network.
            raise EngineUnavailable(str(client), "the session ended before its opening was answered", "not done")
        self._beat_at = sent + deadlines.beat_interval(reply.ttl)
        self._sweep_at = self._opened = sent
        return Session(row.id, reply.ttl, sent)

    async def beat(self, session: Session) -> None:
        """One heartbeat for everything that is held. Only its answer moves the deadline."""
        interval = deadlines.beat_interval(session.ttl)
        sent = self.io.now()
        if self.stalled() == NEVER:
            self.ending.end_with_loop(session)
            return
        if self.stalled() > self.client.max_stall:
            log.warning("%s: the event loop has not turned for %.1f s: not renewing", self.client, self.stalled())
            session.in_danger, self._beat_at = True, sent + interval
            return
        # An early beat of a reader of reasons comes again; a failed one is tried again soon.
        self._beat_at = sent + interval
        try:
            # No longer than until the next one is due: whoever holds is in danger from then on, before it is lost.
            patience = min(self.client.call_limit, interval)
            reply = await self.verbs.renew(session.id, min(session.deadline, sent + patience))
        except EngineUnavailable as error:
            self.endanger(session, error)
            return
        self.answered(session, sent, reply)

    def endanger(self, session: Session, error: EngineUnavailable) -> None:
        """A heartbeat was not confirmed. The next one comes soon."""
        if not session.in_danger:
            log.warning("%s: heartbeat failed, grants are in danger: %s", self.client, error)
        session.in_danger, self.trouble = True, error
        self._beat_at = self.io.now() + deadlines.beat_interval(session.ttl) / 3

    def answered(self, session: Session, sent: float, reply: Renewed | SessionOver) -> None:
        """Take the answer to a heartbeat that was sent at `sent`, whoever sent it."""
        if isinstance(reply, SessionOver):
            self.end(session, reply.reason or RAN_OUT)
            return
        for claim_id, reason in reply.gone:
            self.lose(session, claim_id, reason)
        if reply.undecided:
            self.endanger(session, EngineUnavailable(str(self.client), reply.undecided, "unknown"))
            return
        shorter = reply.ttl < session.ttl
        session.confirm(sent, reply.ttl, self.io.now())
        if shorter:
            self.keep_pace(session, sent)
        session.in_danger, self.trouble = False, None
        self._grant_check.beaten(session, reply.claims)
        if reply.next_death is not None:
            self._sweep_at = self.io.now() + reply.next_death

    def keep_pace(self, session: Session, sent: float) -> None:
        """Heartbeats come more often from now on: the engine grants the session less than before."""
        self._beat_at = min(self._beat_at, sent + deadlines.beat_interval(session.ttl))
        self.verbs.bell.set()

    def before_beat(self) -> float:
        """When a request that is not the heartbeat has to be over, so that it never delays one."""
        now = self.io.now()
        return max(now + 0.05, min(now + self.client.call_limit, self._beat_at))

    async def sweep(self) -> None:
        """Clear away what has died, so that those who wait here go on without delay."""
        self._sweep_at = self.io.now() + MOST_UNWATCHED
        try:
            done = await self.verbs.sweep(self.before_beat())
        except EngineUnavailable as error:
            log.debug("%s: sweep failed: %s", self.client, error)
            return
        # A neighbour with a short ttl that lives on must not keep everybody who waits busy.
        self._calm = 0.0 if done.removed else min(MOST_CALM, self._calm * 2 + 0.05)
        next_death = 0.0 if done.more else MOST_UNWATCHED if done.next_death is None else done.next_death
        self._sweep_at = self.io.now() + max(min(next_death, MOST_UNWATCHED), 0.002 if done.more else self._calm)

    def find_lost(self, session: Session) -> None:
        """Tell holders whose deadline has passed."""
        now = self.io.now()
        if now >= session.deadline:
            self.end(session, f"no heartbeat was confirmed within its ttl of {session.ttl:g} s")
            return
        for hold in list(session.mortal.values()):
            if now >= hold.ends:
                self.lose(session, hold.claim.id, hold.why_over())

    def lose(self, session: Session, claim_id: str, reason: str) -> None:
        """One grant is gone: say so, then give it back, which tells the engine that we know.

        It is given back when the holder's callbacks have returned, so that what ran under the
        lock can be stopped before the next one begins. The engine does not wait longer than a ttl.
        """
        hold = session.holds.get(claim_id)
        if hold is None:
            return
        late = Withdrawal(hold.claim, unanswered=claim_id in self.client.doubtful, due=NEVER)
        self.withdrawals.append(late)
        session.drop(hold)

        def give_back() -> None:
            late.due = 0.0
            self.verbs.bell.set()

        if hold.lose(reason, then=give_back):
            log.warning("%s: lost %r (token %d): %s", self.client, hold.claim.name, hold.token, reason)
        else:
            give_back()

    def end(self, session: Session, reason: str) -> None:
        """The session is over, and everything that was held under it is lost. In any thread, and safe to repeat."""
        if session.over is not None:
            return  # another one may have been opened since, which is none of this one's business
        if self.io.now() - self._opened < LAST_REST:
            # An engine that ends sessions as soon as they are opened is not to be asked for one after the other.
            self._open_at = self.io.now() + next(self._rests)
        else:
            self._rests = full_jitter(FIRST_REST, LAST_REST, self.io.uniform)
        self.client.doubtful.clear()
        holds = session.end(reason, self.io.now())
        for hold in holds:
            hold.lose(reason)
        if holds:
            log.warning("%s: session %s is over, %d grants lost: %s", self.client, session.id, len(holds), reason)
        self.client.wakeups.ring_all()

    async def withdraw_late(self) -> None:
        """Try again to withdraw what could not be withdrawn in time."""
        now = self.io.now()
        for withdrawal in [late for late in self.withdrawals if late.due <= now]:
            session = self.client.session
            if session is not None and session.id == withdrawal.claim.session and session.over is None:
                try:
                    until = min(self.before_beat(), session.deadline)
                    await self.verbs.leave(withdrawal.claim, withdrawal.unanswered, until)
                except EngineUnavailable:
                    withdrawal.pauses = withdrawal.pauses or full_jitter(0.1, session.ttl / 3, self.io.uniform)
                    withdrawal.due = self.io.now() + next(withdrawal.pauses)
                else:
                    self.withdrawals.remove(withdrawal)
                    self.client.doubtful.discard(withdrawal.claim.id)
            else:
                self.withdrawals.remove(withdrawal)  # the session has ended, and the claim with it
            await self.keep_alive()

    def shorten(self, session: Session | None) -> None:
        """Move the deadline back to what the engine has said of this session."""
        told = self._shortened
        if session is None or told is None or told.session != session.id:
            return
        ttl = session.ttl
        session.shorten(told.since, told.ttl, self.io.now())
        if session.ttl < ttl:
            log.warning("%s: the engine grants a ttl of %g s now, not %g s", self.client, session.ttl, ttl)
            self.beat_soon()

    def hear(self, notice: Notice) -> None:
        """Take a notice from the engine, in any thread."""
        if notice.what == SHORTENED:
            # Kept first: the session that it is about may only now become the client's.
            self._shortened = notice
            self.shorten(self.client.session)
            return
        # A claim that is gone: the next heartbeat brings the reason.
        if notice.what in (GONE, RECONNECTED):
            self._grant_check.hear(notice)
            self.beat_soon()
        elif notice.what == MISSED:
            self.beat_soon()
            self.client.wakeups.ring_all()
        else:
            self.client.wakeups.ring(notice.subject)
