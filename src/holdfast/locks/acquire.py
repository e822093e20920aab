"""Taking a lock: the one recipe behind every front that holds something."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from holdfast.core import deadline as deadlines
from holdfast.core.backoff import full_jitter
from holdfast.core.table.commands import Deadlocked, SessionOver, TooEntangled, WrongLimit
from holdfast.engines.engine import Standing
from holdfast.errors import Deadlock, EngineFailure, InvalidRequest, NotAcquired
from holdfast.locks.client import GRACE, Client
from holdfast.locks.hold import Entry, Hold
from holdfast.locks.session import Session
from holdfast.locks.spec import Spec
from holdfast.locks.unsettled import SECOND_LOOK
from holdfast.model import Claim, Gone, Granted, Link, Party, Place, Refused

FIRST_POLL, LAST_POLL = 2.0, 10.0
"""The safety net behind notices: how often a waiter looks by itself."""
FIRST_PAUSE, LAST_PAUSE = 0.002, 0.5
"""Between tries of a claim that another call of its owner has overtaken: full jitter, on the scale of its wait."""


class Missed(Exception):
    """The wait is over and the lock was not granted; the claim is withdrawn."""

    def __init__(self, place: Place | Refused, seen_at: float) -> None:
        self.place, self.seen_at = place, seen_at
        super().__init__()


class Ended(Exception):
    """The claim is over, and another one would be made."""

    def __init__(self, claim_id: str) -> None:
        self.claim_id = claim_id
        super().__init__()


async def acquire(
    client: Client, spec: Spec, wait: float | None, taken: list[Entry], tries: bool = False, once: bool = False
) -> Entry:
    """Wait in line for at most `wait` seconds; NotAcquired after that (Missed if one only tries), and no place is kept.

    Again under a new session, if the first one ended while we stood in line (Ended instead, if it is to be tried
    `once`). What is held is in `taken` and in the client's record: an interrupted caller gives it back, or else the
    keeper.
    """
    io = client.io
    io.check_caller()
    started = now = io.now()
    until = None if wait is None else started + wait
    try:
        while True:
            session = client.session_now(now)
            if session is None:
                session = await client.live_session(answer_by(until))
                now = io.now()
            claim = client.new_claim(session, spec, waits=wait is None or wait > 0.0)
            if client.withdrawals:
                await client.withdraw_late(claim.owner, spec.name, answer_by(until))
                now = io.now()
            held = None if spec.limit else session.find(claim)
            if held is not None and (again := await enter_held(client, session, spec, claim, taken, until)) is not None:
                return again
            entry = Entry(session, claim)
            client.unsettled.begin(entry)
            answered = False
            try:
                client.wakeups.expect(claim.id)
                by = now + client.call_limit if until is None else limit(client, until, now)
                reply = await client.verbs.enter(claim, by)
                answered = True
                if isinstance(reply, Place):
                    now, reply = await stand_in_line(client, claim, spec, reply, until)
                if isinstance(reply, Granted) and keep(client, entry, reply, now) is not None:
                    taken.append(entry)
                    return entry
                client.unsettled.end(entry)
            except BaseException as error:
                await undo(client, session, claim, error, answered, until)
                client.unsettled.end(entry)
                raise
            finally:
                client.wakeups.forget(claim.id)
            if not isinstance(reply, Granted):
                if isinstance(reply, Deadlocked) and await may_pass(client, spec, claim, reply, started, until):
                    now = io.now()
                    continue
                refuse(client, session, spec, reply)
            if once:
                raise Ended(claim.id)
            now = io.now()
    except Missed as missed:
        if tries:
            raise
        raise await not_acquired(client, spec, missed, started, started + (wait or 0.0) + GRACE) from None


async def try_acquire(client: Client, spec: Spec, taken: list[Entry]) -> Entry | None:
    """Take the lock if it is free now. Never waits in line; a deadlock is simply no."""
    try:
        return await acquire(client, spec, 0.0, taken, tries=True)
    except (Missed, Deadlock):
        return None


async def not_acquired(client: Client, spec: Spec, missed: Missed, started: float, by: float) -> NotAcquired:
    """What the caller is told whose wait is over: it names the holder, if that is known or can be asked."""
    holders = await who_holds(client, spec, missed, max(client.io.now(), by))
    place = missed.place.position if isinstance(missed.place, Place) else None
    return NotAcquired(spec.name, client.io.now() - started, holders=holders, place=place, kind=spec.kind)


async def who_holds(client: Client, spec: Spec, missed: Missed, by: float) -> tuple[Party, ...]:
    """The holder that the engine named with the place in the queue, else those that the engine names now.

    The first costs no request. Some engines name only the waiter ahead, and have to be asked.
    """
    seen = missed.place.blocker
    if seen is not None and seen.token is not None:
        return (replace(seen, age=seen.age + client.io.now() - missed.seen_at),)
    return await client.inspections.holders(client.kind(spec.kind), spec.name, by)


async def enter_held(
    client: Client, session: Session, spec: Spec, claim: Claim, taken: list[Entry], until: float | None
) -> Entry | None:
    """What `reenter` says of what this owner holds already. What an ended call has left of that is given back first."""
    await withdraw_left(client, claim.owner, answer_by(until))
    held = session.find(claim)
    return None if held is None else reenter(client, spec, held, taken)


async def withdraw_left(client: Client, owner: str, by: float) -> bool:
    """Withdraw what ended calls of an owner have left, so that it does not wait for itself; whether there was any."""
    left = client.unsettled.left_by(owner, SECOND_LOOK)
    for entry in left:
        if client.drop(entry):
            await client.withdraw(entry.claim, True, by)
        client.unsettled.withdrawn(entry)
    return bool(left)


async def may_pass(
    client: Client, spec: Spec, claim: Claim, reply: Deadlocked, started: float, until: float | None
) -> bool:
    """Whether a deadlock may be over by now, so that the claim has to be tried again. Missed if the time is over.

    What ended calls have left is given back here. A claim that meets nothing but a claim of its own owner
    on the same name was overtaken: another thread or task with that owner is taking the lock just now, or
    gives it back. Once it has it, `reenter` decides.
    """
    if await withdraw_left(client, claim.owner, answer_by(until)):
        return True
    if spec.limit or any((link.owner, link.holds) != (claim.owner, claim.name) for link in reply.cycle):
        return False
    io = client.io
    now = io.now()
    look_at = now + io.uniform(0.0, min(LAST_PAUSE, max(FIRST_PAUSE, now - started)))
    await io.wait(io.signal(), look_at if until is None else min(until, look_at))
    if until is not None and io.now() >= until:
        raise Missed(Refused(), io.now())
    return True


def reenter(client: Client, spec: Spec, held: Hold, taken: list[Entry]) -> Entry | None:
    """What an owner gets that holds this name already: the same hold again, nothing, or a deadlock.

    There is no upgrade from reading to writing: two readers that ask for it would wait for
    each other, and one waits for itself.
    """
    if held.claim.mode == "shared" and spec.mode == "shared" and not spec.reentrant:
        return None
    covered = held.claim.mode == "exclusive" or spec.mode == "shared"
    if spec.reentrant and covered and held.valid and (held.claim.subtree or not spec.subtree):
        entry = Entry(held.session, held.claim)
        client.unsettled.begin(entry)
        if held.enter(entry):
            taken.append(entry)
            return entry
        client.unsettled.end(entry)
        return None
    if not held.valid:
        return None
    claim = held.claim
    link = Link(claim.owner, client.app, client.host, client.pid, claim.thread, claim.name, spec.name)
    raise Deadlock(spec.name, [link])


async def undo(
    client: Client, session: Session, claim: Claim, error: BaseException, answered: bool, until: float | None
) -> None:
    """Leave nothing behind of a claim after this error; EngineUnavailable if that cannot be said."""
    # An interrupt can come at any line, also at one where the hold is kept already.
    session.forget(claim.id)
    if not answered and isinstance(error, EngineFailure) and error.outcome == "not done":
        return
    if isinstance(error, GeneratorExit):
        # Thrown away by whoever awaited it: nothing can be awaited any more.
        client.start_keeper().withdraw(claim, not answered)
        return
    gone = await client.io.shielded(client.withdraw(claim, not answered, answer_by(until)))
    if not gone and isinstance(error, Missed | EngineFailure):
        problem = f"the claim on {claim.name!r} could not be withdrawn yet"
        raise EngineFailure(str(client), problem, "unknown") from error


def answer_by(until: float | None) -> float:
    """When the caller has to have its answer, whatever it is."""
    return inf if until is None else until + GRACE


def limit(client: Client, until: float | None, now: float) -> float:
    """When a request that is sent now has to be answered, if there is to be time to withdraw it after that."""
    usual = now + client.call_limit
    # Half of what is left of the grace is for the withdrawal. To open a session may have taken some of it.
    return usual if until is None else min(usual, (max(until, now) + until + GRACE) / 2)


async def stand_in_line(
    client: Client, claim: Claim, spec: Spec, place: Place, until: float | None
) -> tuple[float, Standing | Deadlocked | WrongLimit | TooEntangled]:
    """Wait for the lock. Returns when the claim stands otherwise than in line, and when that was asked."""
    try:
        client.waiting.add(claim.id)
        return await look_out(client, claim, spec, place, until)
    finally:
        client.waiting.discard(claim.id)


async def look_out(
    client: Client, claim: Claim, spec: Spec, place: Place, until: float | None
) -> tuple[float, Standing | Deadlocked | WrongLimit | TooEntangled]:
    """The same, in line already."""
    io = client.io
    signal = client.wakeups.signal(claim.id, io)
    assert client.keeper is not None
    client.keeper.sweep_soon()
    pauses = full_jitter(FIRST_POLL, LAST_POLL, io.uniform)
    seen_at = io.now()
    while True:
        if spec.on_wait is not None:
            io.call_back(spec.on_wait, place)
        look_at = io.now() + FIRST_POLL + next(pauses)
        woken = await io.wait(signal, look_at if until is None else min(until, look_at))
        signal.clear()
        client.check_open()
        sent = io.now()
        if not woken and until is not None and sent >= until:
            raise Missed(place, seen_at)
        try:
            standing = await (
                client.verbs.look(claim, limit(client, until, sent)) if woken else enter_again(client, claim, until)
            )
        except EngineFailure:
            # The place is kept while the session lives; its end rings, and decides. Until then, look again soon.
            if until is not None and io.now() >= until:
                raise
            await io.wait(signal, io.now() + io.uniform(0.05, 0.3))
            signal.set()
            continue
        if not isinstance(standing, Place):
            return sent, standing
        place, seen_at = standing, sent


async def enter_again(
    client: Client, claim: Claim, until: float | None
) -> Standing | Deadlocked | WrongLimit | TooEntangled:
    """Look, and take what is free now because those before us have died. Safe to repeat while the claim lives.

    Not after that: one that is not answered may arrive when the claim is over, and would bring it back.
    """
    try:
        reply = await client.verbs.enter(claim, limit(client, until, client.io.now()))
    except BaseException as error:
        if not isinstance(error, EngineFailure) or error.outcome == "unknown":
            client.doubtful.add(claim.id)
        raise
    assert not isinstance(reply, Refused)
    return reply


def keep(client: Client, entry: Entry, reply: Granted, sent: float) -> Hold | None:
    """A hold for a claim that was granted; None if its session may be over by now, and the grant with it."""
    session = entry.session
    ends = inf if reply.hold_left is None else deadlines.deadline(sent, reply.hold_left)
    hold = Hold(client.io, entry, reply.token, reply.slot, ends)
    if client.io.now() >= session.deadline or not session.add(hold):
        client.start_keeper().withdraw(entry.claim, unanswered=False)
        return None
    if reply.hold_left is not None:
        client.start_keeper().verbs.bell.set()
    return hold


def refuse(client: Client, session: Session, spec: Spec, reply: object) -> None:
    """Raise what the engine's answer means; return for another try under a new session or claim."""
    match reply:
        case SessionOver():
            client.session_ended(session, reply)
        case Gone():
            # Ended by somebody else while it stood in line: it starts again at the end.
            return
        case Refused():
            raise Missed(reply, client.io.now())
        case Deadlocked():
            raise Deadlock(spec.name, reply.cycle)
        case TooEntangled():
            raise EngineFailure(str(client), reply.problem, "not done")
        case WrongLimit():
            raise InvalidRequest("limit", spec.limit, f"semaphore {spec.name!r} is in use with limit {reply.limit}")
        case _:
            raise AssertionError(f"an engine answered {reply!r}")
