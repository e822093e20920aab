"""What one client holds and awaits by advisory locks, on which connections; shared by its callers and its keeper."""

from __future__ import annotations

import select
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.table.commands import GONE, GRANTED, Notice
from holdfast.engines.advisory.keys import Keys
from holdfast.engines.alarm import Alarm
from holdfast.engines.claim_turns import ClaimTurns
from holdfast.engines.engine import Deliver
from holdfast.engines.postgres.sockets import Turns
from holdfast.engines.postgres.wire import Wire
from holdfast.model import Claim, Granted
from holdfast.runtime import clock
from holdfast.runtime.calls import new_lock

# Where it is missing, a closed connection is seen at the next heartbeat.
HANG_UP: int = getattr(select, "POLLRDHUP", 0)


@dataclass(eq=False)
class Bound:
    """A connection that belongs to one owner, for as long as it holds or awaits something.

    It waits where it holds, because PostgreSQL looks for deadlocks between connections.
    """

    wire: Wire
    turns: Turns
    home: Any
    """The verbs that opened it: only they may use it."""
    owner: str = ""
    claims: dict[str, Taken] = field(default_factory=dict)
    pending: Taken | None = None
    """What its server process waits for."""
    gone: bool = False
    """Whether somebody saw that it is broken."""
    stained: bool = False
    """Whether something may be held on it that nobody has: it is closed instead of used again."""


@dataclass(eq=False)
class Taken:
    """A claim on its way, or granted."""

    claim: Claim
    keys: Keys
    bound: Bound
    token: int | None = None
    ends: float | None = None
    """When `max_hold` is over; the server does not know of it, the keeper sees to it."""
    told: bool = False
    """Whether the keeper has announced that there is an answer, which nobody has looked at yet."""

    def granted(self) -> Granted:
        assert self.token is not None
        return Granted(self.token, None, None if self.ends is None else max(0.0, self.ends - clock.now()))


def name_of(claim: Claim) -> str:
    """What claims have in common that wait for each other."""
    return f"{claim.kind} {claim.name}"


class Holdings:
    """Everything by claim. Safe to use from several threads."""

    def __init__(self) -> None:
        self.lock = new_lock()
        self.taken: dict[str, Taken] = {}
        self.server = ""
        """The server that everything here is held on; another one would grant the same locks again."""
        self.place = 0
        """Which of the hosts led to it."""
        self.wires: dict[Wire, Bound | None] = {}
        """Every open connection, and whose it is. All of them are watched: to begin to watch one costs a wake-up."""
        self.lost: dict[str, str] = {}
        """Claims whose connection went away, until the keeper has heard of it."""
        self.doomed: dict[str, int] = {}
        """Claims whose connection was given up without an answer, and the server process that may hold them still."""
        self.turns = ClaimTurns()
        """By name: which of this client's waiters wait in PostgreSQL, and which wait behind them here."""
        self.bell: AdvisoryBell | None = None
        self.closing = False
        """Whether the session is ending: whoever waits and sees its connection break must not begin to wait anew."""
        self.ttl = 0.0
        self.good_until = 0.0
        """When this client stops to believe in what it holds, unless a heartbeat is answered."""

    def opened(self, wire: Wire) -> None:
        """A new connection: from now on somebody sees it break."""
        with self.lock:
            self.wires[wire] = None
        self.look_up()

    def bind(self, wire: Wire, bound: Bound) -> None:
        """A connection is an owner's from now on."""
        with self.lock:
            self.wires[wire] = bound

    def expect(self, taken: Taken) -> bool:
        """A claim will be sent to the server. False if its connection leads to another server than what is held."""
        wire = taken.bound.wire
        with self.lock:
            if not self.belongs(wire):
                return False
            self.server, self.place = wire.server, wire.place
            taken.bound.pending = taken
            taken.bound.claims[taken.claim.id] = self.taken[taken.claim.id] = taken
            return True

    def belongs(self, wire: Wire) -> bool:
        """Whether a connection leads to the server that everything is held on. If nothing is held, any server will do.

        The answer is good while `lock` is held.
        """
        return not self.taken or wire.server == self.server

    def forget(self, taken: Taken) -> None:
        """Nothing is held or awaited by it, and whoever asks for it knows."""
        with self.lock:
            taken.bound.claims.pop(taken.claim.id, None)
            self.taken.pop(taken.claim.id, None)
            self.lost.pop(taken.claim.id, None)

    def end_turn(self, claim: Claim) -> None:
        """A claim waits no longer: the next one may wait in PostgreSQL."""
        for claim_id in self.turns.end(name_of(claim), claim.id):
            self._wake(claim_id)

    def _wake(self, claim_id: str) -> None:
        if self.bell is not None:
            self.bell.deliver(Notice("", claim_id, GRANTED))

    def look_up(self) -> None:
        """Let the keeper's bell see what there is to watch."""
        if self.bell is not None:
            self.bell.interrupt()

    def lose(self, bound: Bound, reason: str) -> None:
        """A connection is gone, and all that it held: whoever sees it first tells everybody, at once."""
        with self.lock:
            gone = [self.taken.pop(id_) for id_ in list(bound.claims) if id_ in self.taken]
            for taken in gone:
                self.lost[taken.claim.id] = reason
            pending = bound.pending
            bound.claims.clear()
            bound.pending, bound.gone = None, True
            bound.home.broken.append(bound)
        self.look_up()
        for taken in gone:
            self.end_turn(taken.claim)
        if self.bell is not None:
            for taken in gone:
                # Who waited looks, and begins anew.
                what = GRANTED if taken is pending else GONE
                self.bell.deliver(Notice(taken.claim.session, taken.claim.id, what))

    def hang_up(self) -> None:
        """End every connection that holds something, from any thread: the server lets go of all of it."""
        for bound in self.watched():
            bound.wire.hang_up()
            self.lose(bound, CONNECTION_LOST)
        for claim_id in self.turns.end_all():
            self._wake(claim_id)

    def watched(self) -> list[Bound]:
        """Every connection with something on it."""
        with self.lock:
            bounds = [bound for bound in list(self.wires.values()) if bound is not None and bound.claims]
            return [bound for bound in bounds if bound.wire.alive]

    def watchable(self) -> list[Wire]:
        """Every connection that can break."""
        with self.lock:
            for wire in [wire for wire in list(self.wires) if not wire.alive]:
                del self.wires[wire]
            return list(self.wires)


class AdvisoryBell(Alarm):
    """Where the keeper sleeps: until it is rung, a connection breaks, or one that waits has its answer."""

    def __init__(self, holdings: Holdings, deliver: Deliver) -> None:
        super().__init__()
        self.holdings, self.deliver = holdings, deliver

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until something comes; whether anything came."""
        if self._rung:
            self.empty()
            return True
        if self.holdings.taken:
            left = self.holdings.good_until - clock.now()
            if left <= 0:
                # We said that it is lost. So it must not go on keeping others out.
                self.holdings.hang_up()
            else:
                timeout = left if timeout is None else min(timeout, left)
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        wires: dict[int, Wire] = {}
        for wire in self.holdings.watchable():
            bound = self.holdings.wires.get(wire)
            pending = None if bound is None else bound.pending
            waits = pending is not None and not pending.told
            poll.register(wire.descriptor, (select.POLLIN if waits else 0) | HANG_UP)
            wires[wire.descriptor] = wire
        for descriptor, event in poll.poll(None if timeout is None else timeout * 1000):
            if descriptor == self.descriptor:
                self.empty()
            else:
                self._see(wires[descriptor], event)
        return self._rung

    def _see(self, wire: Wire, event: int) -> None:
        bound = self.holdings.wires.get(wire)
        pending = None if bound is None else bound.pending
        if event & (HANG_UP | select.POLLHUP | select.POLLERR | select.POLLNVAL):
            with self.holdings.lock:
                self.holdings.wires.pop(wire, None)
            if bound is None:
                return  # nothing is on it; whoever takes it next finds out
            self.holdings.lose(bound, CONNECTION_LOST)
        elif pending is not None:
            pending.told = True
            self.deliver(Notice(pending.claim.session, pending.claim.id, GRANTED))


CONNECTION_LOST = "its connection to PostgreSQL was lost, and the lock with it"
