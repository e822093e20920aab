"""The client: one session with an engine, shared by many threads or tasks."""

from __future__ import annotations

import copy
import os
import secrets
import socket
import threading
import warnings
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from holdfast.core.names import legible
from holdfast.core.table.commands import OLDER_STATE, Notice, Renewed, SessionOver
from holdfast.engines.engine import LONGEST_CALL, ConfirmingVerbs, Engine, PatientEngine, Verbs
from holdfast.errors import EngineFailure, EngineUnavailable, HoldfastError
from holdfast.locks import parking
from holdfast.locks.errand import Errand
from holdfast.locks.hold import Entry, Hold
from holdfast.locks.holders import HolderInspections
from holdfast.locks.keeper import RAN_OUT, Keeper, Withdrawal, log
from holdfast.locks.owner import current_owner
from holdfast.locks.session import Session
from holdfast.locks.spec import Spec
from holdfast.locks.unsettled import Unsettled
from holdfast.locks.wakeups import Wakeups
from holdfast.model import Claim, Gone, Granted, LockEvent, LockInfo
from holdfast.runtime import fork
from holdfast.runtime.blocking import run
from holdfast.runtime.calls import new_lock

Spawn = Callable[[Coroutine[Any, Any, None]], object]
"""Starts the keeper: in a thread, or in a simulated world."""

GRACE = 1.0
"""How long after its wait a caller may still be kept for a withdrawal to be confirmed."""


class Front(Protocol):
    """What is told of a fork."""

    def forked(self) -> None:
        """This process is a child: begin anew."""


class Client:
    """What the fronts share. It has no public method of its own: the two APIs are made of it."""

    def __init__(
        self,
        engine: Engine,
        make_verbs: Callable[[], Verbs],
        keeper_verbs: Callable[[], Verbs],
        spawn: Spawn,
        *,
        ttl: float,
        namespace: str,
        app: str,
        max_stall: float = float("inf"),
        stalled: Callable[[], float] = lambda: 0.0,
        session_id: Callable[[], str] = lambda: secrets.token_hex(6),
    ) -> None:
        self.engine, self._make_verbs, self._keeper_verbs = engine, make_verbs, keeper_verbs
        self._spawn, self._stalled, self.session_id = spawn, stalled, session_id
        self.ttl, self.namespace, self.app, self.max_stall = ttl, namespace, app, max_stall
        self.host = legible(socket.gethostname())
        patience = engine.patience if isinstance(engine, PatientEngine) else 0.0
        self.call_limit = max(1.0, min(ttl, LONGEST_CALL), patience)
        """For how long one request may go unanswered."""
        self.closed = self._ended = self.exiting = False
        self.unclosed = ""
        """The session that is over here, and has still to be ended at the engine."""
        self.fronts: weakref.WeakSet[Front] = weakref.WeakSet()
        """Those that have a state of their own, with which they begin anew in a fork."""
        engine.deliver = partial(deliver_to, weakref.ref(self))
        self._begin()
        clients.add(self)

    def __del__(self, _warn: Any = warnings.warn) -> None:
        """Nothing refers to it any more but its keeper, which ends it. From here nothing is sent."""
        keeper = getattr(self, "keeper", None)
        if keeper is None or keeper.thread is None or keeper.failed or self.closed or self.pid != os.getpid():
            return
        keeper.keep_forgotten(self)
        _warn(f"{self} was not closed: use it in a `with`, or close it", ResourceWarning, source=self)

    def _begin(self) -> None:
        """The state that a process starts with, and a fork starts with again."""
        self.pid = os.getpid()
        self.verbs = self._make_verbs()
        self.io = self.verbs.io
        self.session: Session | None = None
        self.keeper: Keeper | None = None
        self.wakeups = Wakeups()
        self.waiting: set[str] = set()
        """Claims that stand in line."""
        self.withdrawals: list[Withdrawal] = []
        """What the keeper has still to withdraw."""
        self.errands: list[Errand] = []
        """What the keeper does now and then for the fronts of this client."""
        self.doubtful: set[str] = set()
        """Claims of which an `enter` was never answered: it may still arrive, after whatever is done to end them."""
        self.inspections = HolderInspections(self.verbs)
        self.unsettled = Unsettled(self.io)
        """What running calls take and give back."""
        # Reentrant: a signal handler may have come upon its thread in here.
        self._starting = new_lock()
        self._ending = new_lock()

    def __str__(self) -> str:
        return self.engine.address

    # Names

    def kind(self, kind: str) -> str:
        """A kind with this client's namespace."""
        return f"{self.namespace}.{kind}"

    def shown(self, info: LockInfo) -> LockInfo:
        """A lock as people know it, without the namespace."""
        return replace(info, kind=info.kind.partition(".")[2])

    def shown_event(self, event: LockEvent) -> LockEvent:
        """An event as people know it, without the namespace."""
        return replace(event, kind=event.kind.partition(".")[2])

    # Sessions

    def until(self) -> float:
        """When a request that is sent now has to be answered."""
        return self.io.now() + self.call_limit

    def session_now(self, now: float) -> Session | None:
        """The session, if there is one and it lives."""
        if self.closed:
            self.check_open()
        session = self.session
        return session if session is not None and session.over is None and now < session.deadline else None

    async def live_session(self, by: float = float("inf")) -> Session:
        """The session, opened if there is none; EngineUnavailable if that takes too long, or longer than `by`."""
        while True:
            session = self.session_now(self.io.now())
            if session is not None:
                return session
            keeper = self.start_keeper()
            signal = self.io.signal()
            keeper.want_session(signal)
            if not await self.io.wait(signal, min(by, self.until() + GRACE)):
                trouble = keeper.trouble
                known = trouble.problem if isinstance(trouble, EngineUnavailable) else trouble
                why = "" if known is None else f"; the last try: {known}"
                raise EngineFailure(str(self), f"no session could be opened in time{why}", "not done")
            failure = keeper.failure
            if failure is not None:
                # Each its own: one that all who wait raise would show the calls of all of them.
                raise copy.copy(failure) from failure.__cause__

    def session_ended(self, session: Session, reply: SessionOver) -> None:
        """The engine says that there is no such session any more."""
        if session.over is None:
            self.start_keeper().end(session, reply.reason or RAN_OUT)

    def stay_at_exit(self) -> None:
        """Keep a daemon thread from going on while the process ends: what it held is released, and nothing is wrong."""
        if self.exiting and threading.current_thread() is not threading.main_thread():
            forever = threading.Lock()
            forever.acquire()
            forever.acquire()

    def check_open(self) -> None:
        if self.closed:
            self.stay_at_exit()
            raise HoldfastError(f"{self} was closed")

    def start_keeper(self) -> Keeper:
        """The keeper, started when it is first needed."""
        if self.keeper is not None and self.keeper.started:
            return self.keeper
        with self._starting:
            if self.keeper is None:
                self.keeper = Keeper(self, self._keeper_verbs(), self._stalled)
            if not self.keeper.started:
                # An interrupt in here may let it be started twice; one of the two threads ends at once.
                self.run_keeper(self.keeper)
                self.keeper.started = True
            return self.keeper

    def run_keeper(self, keeper: Keeper) -> None:
        """Start the keeper's thread: the first one, or the one after a fork."""
        running = self._spawn(keeper.run())
        keeper.thread = running if isinstance(running, threading.Thread) else None

    def deliver(self, notice: Notice) -> None:
        """Take a notice from the engine, in any thread."""
        if self.keeper is not None:
            self.keeper.hear(notice)

    # Claims

    def new_claim(self, session: Session, spec: Spec, waits: bool, owner: str = "") -> Claim:
        """A claim with an id of its own, of whoever is running now unless told."""
        current, thread = current_owner(self.io.task())
        id_ = session.id
        return Claim(
            f"{id_}-{next(session.numbers)}", id_, f"{id_}/{owner or current}", f"{self.namespace}.{spec.kind}",
            spec.name, spec.mode, spec.subtree, spec.limit, waits, False, spec.max_hold, spec.note, thread,
        )  # fmt: skip

    def known_claims(self, session: Session) -> set[str]:
        """The ids of claims that are held, wanted or being given back. A claim that the engine has and that is not
        among them, asked for after the engine has listed it, is over as far as this client knows.
        """
        # In the order in which claims move on, in other threads: none is missed on its way.
        known = self.unsettled.claim_ids()
        with session.lock:
            known.update(session.holds)
        known.update(late.claim.id for late in list(self.withdrawals))
        return known

    def drop(self, entry: Entry) -> bool:
        """Hold this entry no more, although the engine has not confirmed it; whether its claim has to be withdrawn."""
        hold, session = entry.hold, entry.session
        self.waiting.discard(entry.claim.id)
        self.wakeups.forget(entry.claim.id)
        if hold is not None:
            with session.lock:
                if not hold.released and any(other is not entry for other in hold.entries):
                    hold.entries.discard(entry)
                    entry.released = True
                else:
                    # It may be free already, and will be once the withdrawal gets through: not valid from here on.
                    hold.withdrawn, hold.released, entry.released = True, False, False
            if entry.released:
                entry.end_hook()
                return False
        session.forget(entry.claim.id)
        return session.over is None

    async def withdraw(self, claim: Claim, unanswered: bool, by: float = float("inf")) -> bool:
        """Make sure that a claim is gone; False if that could not be confirmed `by` then (the keeper goes on)."""
        if self.closed or self.keeper is None:
            return True  # the session is over, and the claim with it
        unanswered = unanswered or claim.id in self.doubtful
        try:
            await self.verbs.leave(claim, unanswered, min(by, self.io.now() + GRACE))
        except EngineFailure:
            self.keeper.withdraw(claim, unanswered)
            return False
        except BaseException:
            self.keeper.withdraw(claim, unanswered)
            raise
        self.doubtful.discard(claim.id)
        return True

    async def withdraw_late(self, owner: str, name: str, by: float) -> None:
        """Finish what is still to be withdrawn of this owner on this name, so that it does not wait for itself."""
        for late in [late for late in self.withdrawals if (late.claim.owner, late.claim.name) == (owner, name)]:
            await self.verbs.leave(late.claim, late.unanswered, min(by, self.until()))
            late.due = 0.0  # the keeper repeats it, which is harmless, and forgets it

    async def renew(self, hold: Hold) -> None:
        """One heartbeat now, sent by the caller. What the engine does not have any more as it was given is lost then.

        An engine that came back with an older state may know the session and not the grant.
        """
        session = hold.session
        if session.over is None:
            await self._beat(session)
        if session.over is not None or not isinstance(self.verbs, ConfirmingVerbs):
            return
        standing = await self.verbs.confirm(hold.claim, min(session.deadline, self.until()))
        if isinstance(standing, Granted) and standing.token == hold.token:
            return
        if isinstance(standing, Gone):
            # One that was taken from us has a reason, which comes with the heartbeat.
            await self._beat(session)
        if isinstance(standing, SessionOver):
            self.session_ended(session, standing)
        elif session.has(hold):
            self.start_keeper().end(session, OLDER_STATE)

    async def _beat(self, session: Session) -> None:
        sent = self.io.now()
        try:
            reply = await self.verbs.renew(session.id, min(session.deadline, self.until()))
        except EngineFailure as error:
            self.start_keeper().endanger(session, error)
            raise
        self.start_keeper().answered(session, sent, reply)
        if isinstance(reply, Renewed) and reply.undecided:
            raise EngineFailure(str(self), reply.undecided, "unknown")

    # The end

    async def close(self) -> None:
        """End the session, which releases everything, and stop the keeper.

        A caller that is cancelled stops when it is done; one that was interrupted may call it again.
        """
        self.io.check_caller()
        if not self._ended:
            await self.io.shielded(self._close())

    async def _close(self) -> None:
        self.closed = True
        keeper = self.keeper
        try:
            self._end_session("the client was closed")
            while self.unclosed:
                if not (await self.verbs.close_session(self.unclosed, self.until())).more:
                    self.unclosed = ""
        except EngineFailure:
            self.unclosed = ""  # it ends with its ttl; whatever else was raised leaves it to the keeper
            raise
        finally:
            # An interrupt may have come before it was done.
            self._end_session("the client was closed")
            self.wakeups.ring_all()
            if keeper is not None:
                keeper.stop()
                await self.io.wait(keeper.done, self.until() + GRACE)
            await self.io.apart(self._end_engine)
            # An event loop needs a few turns to take down what was closed.
            for _ in range(3):
                await self.io.wait(self.io.signal(), self.io.now())

    def _end_engine(self) -> None:
        """Close what the engine has open; once, also if two calls close the client."""
        with self._ending:
            if not self._ended:
                self.engine.close()
                self._ended = True

    def _end_session(self, reason: str) -> None:
        """Hold nothing any more, as far as this process knows. The engine has still to be told."""
        session = self.session
        if session is not None and session.over is None:
            self.unclosed = session.id
            for hold in session.end(reason, self.io.now()):
                hold.released = True

    def close_at_exit(self) -> None:
        """The process ends without having closed: let go of everything, so that nobody has to wait for the ttl."""
        session, keeper = self.session, self.keeper
        if self.closed or keeper is None or session is None or session.over is not None:
            return
        self.closed = self.exiting = True
        for hold in session.end("the process ended", self.io.now()):
            hold.released = True
        try:
            while run(keeper.verbs.close_session(session.id, self.until())).more:
                continue
        except EngineUnavailable as error:
            log.warning("%s: the session could not be closed at exit: %s", self, error)

    def forked(self) -> None:
        """This process is a child: it drops its parent's session without a word, and begins anew."""
        session = self.session
        self.engine.abandon()
        self._begin()
        for front in list(self.fronts):
            front.forked()
        if session is not None:
            session.lock = new_lock()
            for hold in session.end("this process is a fork of the one that holds it", self.io.now()):
                # Only said when asked: the callbacks are the parent's.
                hold.on_lost.clear()
                hold.lose(session.over or "")


def deliver_to(client: weakref.ref[Client], notice: Notice) -> None:
    """Hand a notice to a client, if it is still there: connections must not keep it."""
    there = client()
    if there is not None:
        there.deliver(notice)


clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _in_child() -> None:
    for client in list(clients):
        client.forked()


os.register_at_fork(after_in_child=_in_child)
fork.around(fork.THREADS, lambda: parking.park(list(clients)), lambda: parking.go_on(list(clients)))
