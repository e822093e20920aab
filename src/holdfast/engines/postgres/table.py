"""The lock table in PostgreSQL, as a place to send commands to: retries, deadlines and outcomes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.core import names
from holdfast.core.backoff import full_jitter
from holdfast.core.table import commands as cm
from holdfast.core.table.changes import PutRow
from holdfast.core.table.lines import UNKNOWN_CLAIM
from holdfast.engines.postgres import fast
from holdfast.engines.postgres import statements as st
from holdfast.engines.postgres.commits import Commit, VerbCall
from holdfast.engines.postgres.connections import Connections
from holdfast.engines.postgres.crowd import Crowd, Seat
from holdfast.engines.postgres.ledger import Ledger
from holdfast.engines.postgres.schema import WAIT_LOCK, lock_class
from holdfast.engines.postgres.step import SWEEP_AGAIN, Attempt, Message, NeedBuckets, planned_buckets
from holdfast.engines.postgres.trouble import AGAIN, lost, unavailable
from holdfast.engines.postgres.wire import MOVED, SqlError, Wire, WireLost
from holdfast.errors import EngineFailure
from holdfast.model import Claim, Gone, Granted, Place
from holdfast.runtime import clock

MOST_CROWDED = 1000


class PostgresTable:
    """Runs commands, each in transactions of its own. One source for threads and tasks."""

    def __init__(self, connections: Connections, ledger: Ledger, deliver: Callable[[cm.Notice], None]) -> None:
        self.connections, self.ledger, self.deliver = connections, ledger, deliver
        self.own, self.unflushed = ledger.own, ledger.unflushed
        self.crowded: dict[tuple[str, str], Crowd] = {}
        """Where claims have to queue."""
        self.address = connections.address.shown
        self.lock_class = lock_class(connections.address.schema)

    async def call(self, command: cm.Command, until: float) -> Any:
        """Run a command; EngineUnavailable with its outcome if it could not be done in time.

        The outcome is decided here, for all that the command sent: below, every failure is "not done".
        """
        call = VerbCall(until)
        try:
            if self.unflushed.suspect:
                await self.withdraw_again(until)
            return await self._run(command, call)
        except EngineFailure as error:
            if call.may_have_changed:
                raise lost(self.address, error.problem, committing=True) from error
            raise

    async def _run(self, command: cm.Command, call: VerbCall) -> Any:
        match command:
            case cm.Open():
                self.own.add(command.session.id)
                self.connections.channel = self.ledger.channel
                return (await self._step(command, call))[0]
            case cm.Renew():
                return await self._renew(command, call)
            case cm.Close():
                return await self._close(command, call)
            case cm.Sweep():
                return await self._sweep(command, call)
            case cm.Look():
                return await self._look(command, call)
            case cm.Enter() if command.claim.id in self.ledger.queued:
                # A waiter that looks by itself, as each of a thousand does now and then: without a lock, unless it is
                # the next. Then it may be that all who were before it have died.
                standing = await self._look(cm.Look(command.claim), call)
                if not isinstance(standing, Place) or standing.position > 1:
                    return standing
            case cm.Release() if command.claim.id in self.ledger.doubtful:
                self.ledger.forget(command.claim.id)
                released, _ = await self._step(command, call)
                await self._bury(command.claim, call)
                return released
            case cm.Enter() | cm.Release():
                claim = command.claim
                self.ledger.forget(claim.id)
                crowded = (claim.kind, claim.name) in self.crowded
                if crowded and isinstance(command, cm.Enter) and claim.waits and fast.fits(claim):
                    return await self._enter_together(command, call)
                if fast.fits(claim) and (isinstance(command, cm.Release) or not crowded):
                    reply = await self._fast(command, crowded, call)
                    if reply is not None:
                        return reply
                    if isinstance(command, cm.Enter) and claim.waits:
                        # Many may have come at the same moment. Those that still wait for a connection join this one.
                        self._expect_crowd(claim)
                        return await self._enter_together(command, call)
            case cm.Leave():
                waited = command.claim.id in self.ledger.queued
                self.ledger.forget(command.claim.id)
                if command.claim.id in self.ledger.doubtful:
                    return await self._bury(command.claim, call)
                if waited and not command.unanswered and await self._leave_together(command.claim, call):
                    return cm.Done()
        return (await self._step(command, call))[0]

    async def _bury(self, claim: Claim, call: VerbCall) -> cm.Reply:
        """Withdraw a claim and leave a tombstone, which an enter that comes late finds."""
        reply, _ = await self._step(cm.Leave(claim, unanswered=True), call)
        self.ledger.doubtful.discard(claim.id)
        return reply

    async def withdraw_again(self, until: float) -> None:
        """After a connection broke: make sure of the releases that may not have been on disk."""
        self.unflushed.suspect = False
        for claim in list(self.unflushed.claims.values()):
            try:
                await self._step(cm.Leave(claim), VerbCall(until))
            except EngineFailure:
                self.unflushed.suspect = True
                raise
            self.unflushed.flushed([claim.id])

    async def _enter_together(self, command: cm.Enter, call: VerbCall) -> cm.Reply:
        """Enter with others who want a place in the same line. What one of them has sent leaves the outcome open."""
        seat = Seat(command.claim)
        try:
            reply = await self._fast(command, True, call, seat)
            return reply if reply is not None else (await self._step(command, call))[0]
        except EngineFailure:
            # First this, so that nobody asks for it who has not said so yet.
            seat.over = True
            call.may_have_changed = call.may_have_changed or seat.asked
            raise

    async def _fast(
        self, command: cm.Enter | cm.Release, crowded: bool, call: VerbCall, seat: Seat | None = None
    ) -> cm.Reply | None:
        """All in one round trip; None where something is in the way, and nothing was done."""
        earlier = self.unflushed.snapshot()
        try:
            if seat is not None:
                found = await self._queue(seat, call)
                return self._queued(seat.claim, found[0]) if found else None
            with Commit(call, self.ledger.commits) as commit:
                sent, found = await self._take_shortcut(command, crowded, call, commit)
                if not found:
                    commit.changed_nothing()
                    return None
                return self._took(command, crowded, sent, found[0], earlier)
        except SqlError as error:
            if error.state in AGAIN:
                return None
            raise unavailable(self.address, error) from error
        except WireLost as error:
            self.unflushed.suspect = bool(self.unflushed.claims)
            if error.late:
                raise lost(self.address, error, committing=False) from error
            self.connections.drop_idle()
            return await self._after_loss(command, call)

    def _queued(self, claim: Claim, found: list[Any]) -> Place:
        """It has a place in line."""
        self.ledger.queued.add(claim.id)
        place = fast.place(found)
        crowd = self.crowded.get((claim.kind, claim.name))
        if crowd is not None:
            crowd.length = place.position
        return place

    def _took(
        self, command: cm.Enter | cm.Release, crowded: bool, sent: float, found: Any, earlier: list[str]
    ) -> cm.Reply:
        """A shortcut did it: what it found is a token, the claim that was released, or the one that is next."""
        claim = command.claim
        if isinstance(command, cm.Enter):
            self.unflushed.flushed(earlier)
            return Granted(found, None, claim.max_hold)
        if not crowded:
            self.unflushed.claims[claim.id] = claim
            return cm.Done()
        self.unflushed.flushed(earlier)
        crowd = self.crowded.get((claim.kind, claim.name))
        if crowd is not None:
            crowd.passed_on = clock.now()
        id_, session, token, max_hold, _ = found
        if session in self.own:
            self.ledger.passed_on.add(id_, Granted(token, None, max_hold), sent)
            self.deliver(cm.Notice(session, id_, cm.GRANTED))
        return cm.Done()

    async def _take_shortcut(
        self, command: cm.Enter | cm.Release, crowded: bool, call: VerbCall, commit: Commit
    ) -> tuple[float, list[Any]]:
        """When it was sent, and what came of it."""
        claim = command.claim
        passes_on = crowded and isinstance(command, cm.Release)
        # An end does not have to be on disk before it is told: see `Attempt`.
        flushed = passes_on or isinstance(command, cm.Enter)
        wire = await self.connections.take(call.until)
        try:
            if not crowded and isinstance(command, cm.Enter) and claim.waits and self._crowd(claim) is not None:
                return clock.now(), []  # others found out meanwhile that claims have to queue
            message = Message(wire)
            # Statements of one message are one transaction. The locks come in one before, for what is seen after them.
            message.lock(self.lock_class, [names.bucket(claim.name)], *([] if flushed else [fast.NO_FLUSH]))
            message.call(*(fast.pass_on(claim, self.own) if passes_on else fast.statement(command)))
            commit.sending(wire)
            sent = clock.now()
            return sent, await message.send(call.until)
        finally:
            await self.give_back(wire, call.until)

    async def _queue(self, seat: Seat, call: VerbCall) -> list[Any]:
        """Take a place in line, together with others of this process who want one in the same line."""
        sockets = self.connections.sockets
        crowd = self.crowded.get((seat.claim.kind, seat.claim.name)) or Crowd(sockets.turns(), sockets.turns())
        crowd.seats.append(seat)
        try:
            left = crowd.courtesy()
            if left > 0:
                await sockets.pause(left)
            if not await crowd.door.take(call.until):
                raise lost(self.address, "others were asking for places in line", committing=False)
            try:
                if seat.found is None:
                    await self._ask_for_places(crowd.take(seat), call)
            finally:
                crowd.door.give()
        finally:
            seat.over = True
        return seat.found or []

    async def _ask_for_places(self, seats: list[Seat], call: VerbCall) -> None:
        """All in one round trip. Where it fails, the others ask again by themselves."""
        wire = await self.connections.take(call.until)
        try:
            message = Message(wire)
            for seat in seats:
                seat.asked = True
            claims = [seat.claim for seat in seats if not seat.over]
            # A place in line does not have to be on disk before it is told: see `Attempt`.
            message.lock(self.lock_class, [names.bucket(claims[0].name), WAIT_LOCK], fast.NO_FLUSH)
            message.call(*fast.queue(claims))
            (places,) = await message.send(call.until)
        finally:
            await self.give_back(wire, call.until)
        found = {each[0]: each for each in places}
        for seat in seats:
            seat.found = [found[seat.claim.id]] if seat.claim.id in found else []

    async def _leave_together(self, claim: Claim, call: VerbCall) -> bool:
        """Take a claim out of its queue with others of this client; whether that was done. If not, a step does it."""
        crowd = self._crowd(claim)
        if crowd is None or not fast.fits(claim):
            return False
        seat = Seat(claim)
        crowd.leaving.append(seat)
        try:
            if not await crowd.exit_door.take(call.until):
                raise lost(self.address, "others were leaving the queue", committing=False)
            try:
                # Was it asked with others, without an answer? Then it leaves by itself.
                if not seat.asked:
                    await self._take_out(crowd.take_leaving(), call)
            finally:
                crowd.exit_door.give()
        except SqlError as error:
            if error.state not in AGAIN:
                raise unavailable(self.address, error) from error
        except WireLost as error:
            if error.late:
                raise lost(self.address, error, committing=False) from error
            self.connections.drop_idle()
        finally:
            seat.over = True
            call.may_have_changed = call.may_have_changed or seat.asked
        return bool(seat.found)

    async def _take_out(self, seats: list[Seat], call: VerbCall) -> None:
        """All in one round trip. Those that it does not take out, or all if it fails, leave by themselves."""
        wire = await self.connections.take(call.until)
        try:
            claims = [seat.claim for seat in seats]
            for seat in seats:
                seat.asked = True
            message = Message(wire)
            message.lock(self.lock_class, [names.bucket(claims[0].name)], fast.NO_FLUSH)
            message.call(*fast.leave(claims))
            (gone,) = await message.send(call.until)
        finally:
            await self.give_back(wire, call.until)
        self.unflushed.claims.update({claim.id: claim for claim in claims if claim.id in gone})
        for seat in seats:
            seat.found = [seat.claim.id] if seat.claim.id in gone else []

    async def _after_loss(self, command: cm.Enter | cm.Release, call: VerbCall) -> cm.Reply:
        """The connection broke, and it may have been done. An enter can be repeated; a release looks first."""
        if isinstance(command, cm.Enter):
            self.ledger.doubtful.add(command.claim.id)
        if isinstance(command, cm.Release):
            standing, _ = await self._step(cm.Look(command.claim), call)
            if standing == Gone(UNKNOWN_CLAIM):
                return cm.Done()
        reply, _ = await self._step(command, call)
        if isinstance(command, cm.Enter) and not isinstance(reply, Granted | Place):
            # It is over for its caller, and the first request may still arrive: it would take the lock for nobody.
            await self._bury(command.claim, call)
        return reply

    async def _renew(self, command: cm.Renew, call: VerbCall) -> cm.Reply:
        """The heartbeat, and after it, apart from it, a little clearing up: it needs other locks."""
        reply, attempt = await self._step(command, call)
        if isinstance(reply, cm.Renewed) and attempt.something_died:
            try:
                swept = await self._sweep(cm.Sweep(), call)
            except EngineFailure:
                # The heartbeat counts all the same; somebody will clear up later.
                return replace(reply, next_death=SWEEP_AGAIN)
            return replace(reply, next_death=0.0 if swept.more else swept.next_death)
        return reply

    async def _close(self, command: cm.Close, call: VerbCall) -> cm.Reply:
        """The end of a session is one change; removing what it leaves behind takes locks that come before its row."""
        await self._step_alone(st.END_SESSION, (command.session,), call)
        reply, _ = await self._step(command, call)
        if isinstance(reply, cm.Done) and not reply.more:
            self.own.discard(command.session)
        return reply

    async def _sweep(self, command: cm.Sweep, call: VerbCall) -> cm.Done:
        reply, attempt = await self._step(command, call)
        assert isinstance(reply, cm.Done)
        if not attempt.step.changes and attempt.something_died:
            # Somebody else is at it. What died since they began is left for another look.
            return replace(reply, next_death=SWEEP_AGAIN)
        return reply

    async def _step(self, command: cm.Command, call: VerbCall) -> tuple[cm.Reply, Attempt]:
        buckets = planned_buckets(command)
        crowded = isinstance(command, cm.Enter) and (command.claim.kind, command.claim.name) in self.crowded
        pauses = full_jitter(0.002, 0.25, random.uniform)
        until = call.until
        fresh = False
        while True:
            earlier = self.unflushed.snapshot()
            commit = Commit(call, self.ledger.commits)
            try:
                with commit:
                    wire = await self.connections.take(until)
                    fresh = fresh or not wire.prepared
                    attempt = Attempt(wire, command, buckets, self.lock_class, self.ledger, commit, crowded)
                    sent = clock.now()
                    try:
                        reply = await attempt.run(until)
                    finally:
                        await self.give_back(wire, until)
                    self._remember(attempt, earlier)
                    if isinstance(command, cm.Enter):
                        self._notice_crowd(command.claim, reply)
                    self._pass_on(attempt, sent)
                return reply, attempt
            except NeedBuckets as more:
                buckets |= more.buckets
                crowded = False
            except SqlError as error:
                if error.state not in AGAIN or clock.now() >= until:
                    raise unavailable(self.address, error) from error
                await self.connections.sockets.pause(min(next(pauses), max(0.0, until - clock.now())))
            except WireLost as error:
                self.unflushed.suspect = bool(self.unflushed.claims)
                if commit.sent or fresh or error.late:
                    raise lost(self.address, error, committing=False) from error
                # It had died while nobody used it, and nothing was done: once more, on a new one.
                self.connections.drop_idle()
                fresh = True

    async def _look(self, command: cm.Look, call: VerbCall) -> cm.Reply:
        id_ = command.claim.id
        standing: cm.Reply | None = self.ledger.passed_on.take(id_)
        if standing is None:
            standing, _ = await self._step(command, call)
        if not isinstance(standing, Place):
            self.ledger.queued.discard(id_)
        return standing

    def _notice_crowd(self, claim: Claim, reply: cm.Reply) -> None:
        """Remember where claims have to queue: there, what they will ask is sent along with the first question."""
        if not isinstance(reply, Place):
            self.crowded.pop((claim.kind, claim.name), None)
            return
        self.ledger.queued.add(claim.id)
        self._expect_crowd(claim)

    def _crowd(self, claim: Claim) -> Crowd | None:
        """The claims of this client that want a place in the queue of this one; None if it need not queue."""
        return self.crowded.get((claim.kind, claim.name))

    def _expect_crowd(self, claim: Claim) -> None:
        """Claims on this name have to queue now."""
        if len(self.crowded) >= MOST_CROWDED:
            self.crowded.clear()
        if self._crowd(claim) is None:
            turns = self.connections.sockets.turns
            self.crowded[claim.kind, claim.name] = Crowd(turns(), turns())

    def _pass_on(self, attempt: Attempt, sent: float) -> None:
        """Tell the claims of this process what became of them."""
        told = {notice.subject for notice in attempt.step.notices if notice.session in self.own}
        for change in attempt.step.changes if told else ():
            if isinstance(change, PutRow) and change.row.token is not None and change.row.id in told:
                row = change.row
                left = None if row.dies_at is None else row.dies_at - attempt.step.now
                self.ledger.passed_on.add(row.id, Granted(change.row.token, row.slot, left), sent)
        for notice in attempt.step.notices:
            if notice.session in self.own:
                self.deliver(notice)

    def _remember(self, attempt: Attempt, earlier: list[str]) -> None:
        command = attempt.command
        if not attempt.flushed:
            if isinstance(command, cm.Release | cm.Leave):
                self.unflushed.claims[command.claim.id] = command.claim
        elif attempt.commit.sent and earlier:
            self.unflushed.flushed(earlier)

    async def _step_alone(self, statement: Any, values: tuple[Any, ...], call: VerbCall) -> None:
        """One statement that is a transaction by itself, and harmless to repeat."""
        pauses = full_jitter(0.002, 0.25, random.uniform)
        until = call.until
        fresh = False
        while True:
            try:
                with Commit(call, self.ledger.commits) as commit:
                    wire = await self.connections.take(until)
                    try:
                        message = Message(wire)
                        message.call(statement, values)
                        commit.sending(wire)
                        await message.send(until)
                    finally:
                        await self.give_back(wire, until)
                return
            except SqlError as error:
                if error.state == MOVED and not fresh:
                    # A proxy that pools transactions refuses the next connection too. One that did so only for a while
                    # has left connections that lead to other server processes.
                    self.connections.drop_idle()
                    fresh = True
                elif error.state not in AGAIN or clock.now() >= until:
                    raise unavailable(self.address, error) from error
            except WireLost as error:
                if fresh or error.late:
                    raise lost(self.address, error, committing=False) from error
                self.connections.drop_idle()
                fresh = True
            await self.connections.sockets.pause(min(next(pauses), max(0.0, until - clock.now())))

    async def give_back(self, wire: Wire, until: float) -> None:
        """Hear what arrived on a wire, end what is open on it, and give it back."""
        try:
            if wire.alive:
                for message in wire.arrived():
                    self.hear(message)
                await self._undo(wire, until)
        finally:
            self.connections.give(wire)

    async def _undo(self, wire: Wire, until: float) -> None:
        """Roll back. What a message that failed had prepared is not known any more, so all of it is prepared anew."""
        if not wire.alive or not (wire.in_transaction or wire.unsure):
            return
        if wire.unsure and not wire.direct:
            # Another client of the proxy may have had the server process meanwhile, and reset it.
            wire.close()
            return
        wire.prepared.clear()
        try:
            await wire.send(["ROLLBACK", "DEALLOCATE ALL"], max(until, clock.now() + 0.2))
            wire.unsure = False
        except (SqlError, WireLost):
            wire.close()

    def hear(self, message: bytes) -> None:
        """Take what the server sent unasked, if the lock table has signed it."""
        text = self.connections.notices.text(message)
        if text is None:
            return
        what, subject, *more = text.split(" ")
        token = more[0] if more else ""
        if token and what == cm.GRANTED and subject in self.ledger.queued:
            # It comes after the commit, and the deadline is the session's: there is nothing to ask.
            self.ledger.passed_on.add(subject, Granted(int(token)), clock.now())
        self.deliver(cm.Notice(subject.partition("-")[0], subject, what))
