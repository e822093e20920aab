"""The verbs of the advisory recipe. One source for threads and tasks."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.core.table.commands import Deadlocked, Done, Opened, Renewed, SessionOver
from holdfast.core.table.rows import Session
from holdfast.engines.advisory import keys
from holdfast.engines.advisory.holdings import CONNECTION_LOST, Bound, Holdings, Taken, name_of
from holdfast.engines.advisory.inspection import ATTEND, InspectingVerbs
from holdfast.engines.postgres.connections import Connections, ConnectionsBusy
from holdfast.engines.postgres.proxy import EXPLANATION
from holdfast.engines.postgres.trouble import lost, unavailable
from holdfast.engines.postgres.wire import SqlError, Wire, WireLost
from holdfast.errors import EngineFailure
from holdfast.model import Claim, Gone, Place, Refused
from holdfast.runtime import clock
from holdfast.runtime.asyncio import run_in_loop
from holdfast.runtime.io import Io, Signal

GRACE = 0.5
"""What the caller keeps of a deadline for giving up in order."""
MOST_SENT = 16
"""How many waiters of one client on one name wait in PostgreSQL, while few connections are in use."""
ELSEWHERE = (
    "the connection leads to another server than the one on which this session holds its locks; that one is tried "
    "until they are released or lost"
)


class AdvisoryVerbs(InspectingVerbs):
    """Session advisory locks: one round trip to take, one to give back."""

    def __init__(
        self,
        io: Io,
        bell: Signal,
        connections: Connections,
        holdings: Holdings,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.io, self.bell, self.connections, self.holdings, self.loop = io, bell, connections, holdings, loop
        self.address = connections.address.shown
        self._bound: dict[str, Bound] = {}
        self._unused: dict[Wire, Bound] = {}
        self.broken: list[Bound] = []
        """Connections that somebody saw break, in any thread."""

    # Connections

    async def _bind(self, owner: str, until: float) -> Bound:
        """The owner's own connection, with the turn on it."""
        while True:
            await self._reap()
            bound = self._bound.get(owner)
            if bound is None:
                await self._reap_unused()
                wire = await self.connections.take(until)
                mine = self._unused.pop(wire, None) or Bound(wire, self.connections.sockets.turns(), self)
                bound = self._bound.setdefault(owner, mine)
                if bound is mine:
                    mine.owner = owner
                    self.holdings.bind(wire, mine)
                    self.connections.keep(wire)
                else:  # the same owner has got one meanwhile, by another call
                    self.connections.give(wire)
            await self._join(bound, until)
            if self._bound.get(owner) is bound and not bound.gone:
                return bound
            # Whoever had the turn has given the connection back, and it may be another owner's by now; or it broke.
            self._leave(bound, owner)

    async def _join(self, bound: Bound, until: float) -> None:
        if not await bound.turns.take(until):
            raise lost(self.address, "its owner's connection was busy", committing=False)

    def _leave(self, bound: Bound, owner: str) -> None:
        """Give the turn back, and the connection too if nothing is left on it."""
        if bound.wire.busy and bound.pending is None:
            # An interrupt came before the answer was read: nobody knows what it was.
            bound.wire.close()
        if not bound.wire.alive and bound.claims:
            self.holdings.lose(bound, CONNECTION_LOST)
        unused = not bound.claims and self._bound.get(owner) is bound
        if unused:
            # From here on it is this call's, which may be interrupted before it has given it back.
            self.connections.lend(bound.wire)
            # Before the turn is given: whoever gets it has to see that this connection is its owner's no more.
            del self._bound[owner]
            if bound.gone or bound.stained:
                bound.wire.close()
            else:
                self._unused[bound.wire] = bound
        bound.turns.give()
        if unused:
            self.connections.give(bound.wire)

    async def _reap(self) -> None:
        """Give back connections that somebody else saw break: their owners may never ask for anything again."""
        while self.broken:
            try:
                bound = self.broken.pop()
            except IndexError:
                return  # another thread was faster
            # Whoever has the turn on it sees to that by itself.
            if await bound.turns.take(0.0):
                self._leave(bound, bound.owner)

    async def _reap_unused(self) -> None:
        """Give back connections that interrupted calls have left with nothing on them."""
        for bound in list(self._bound.values()):
            if not bound.claims and await bound.turns.take(0.0):
                self._leave(bound, bound.owner)
        self._forget_dead()

    def _drop_idle(self) -> None:
        """The server went away, and with it the connections that nobody uses."""
        self.connections.drop_idle()
        self._forget_dead()

    def _forget_dead(self) -> None:
        for wire in [wire for wire in list(self._unused) if not wire.alive]:
            self._unused.pop(wire, None)

    # Taking

    async def enter(self, claim: Claim, until: float) -> Any:
        """Take the lock, or wait for it in PostgreSQL, or wait behind this client's waiters on the name.

        A waiter in PostgreSQL takes a connection. The first one always may, and a few more while few are in use:
        there they have their places among the waiters of all clients.
        """
        holdings, name = self.holdings, name_of(claim)
        if claim.id in holdings.taken or claim.id in holdings.lost:
            return await self.look(claim, until)
        if not claim.waits:
            # The one that waits here came first.
            return Refused() if holdings.turns.waiting(name) else await self._send(claim, until)
        keeps_turn = waited = holdings.turns.knows(name, claim.id)
        if not self._has_turn(claim, name):
            return Place(holdings.turns.place(name, claim.id))
        try:
            reply = await self._send(claim, until)
            keeps_turn = isinstance(reply, Place) and claim.id in holdings.taken
        except ConnectionsBusy:
            if not waited and holdings.turns.count(name) == 1:
                raise
            # It waits in this client, where waiting needs no connection: that is no failure.
            keeps_turn = True
            return Place(1)
        finally:
            if not keeps_turn:
                holdings.end_turn(claim)
        return reply

    def _has_turn(self, claim: Claim, name: str) -> bool:
        bound, turns = self._bound.get(claim.owner), self.holdings.turns
        if bound is not None and bound.claims:
            # It waits on the connection that it has. The server finds no deadlock of a holder that waits elsewhere.
            turns.take(name, claim.id)
            return True
        few = turns.count(name) < MOST_SENT and self.connections.are_plenty()
        return turns.admit(name, claim.id, MOST_SENT if few else 1)

    async def _send(self, claim: Claim, until: float) -> Any:
        for fresh in (False, True):
            bound = await self._bind(claim.owner, until)
            taken = Taken(claim, keys.keys_of(claim.kind, claim.name), bound)
            try:
                if bound.pending is not None:
                    # Another thread of the same owner waits here: one at a time.
                    return Refused() if not claim.waits else Place(1)
                # Before the first byte: whatever interrupts this, it is known that something may be held.
                if not self.holdings.expect(taken):
                    bound.wire.close()
                    raise EngineFailure(self.address, ELSEWHERE, "not done")
                await bound.wire.post_prepared(keys.take(claim), taken.keys.values, until)
                standing = await self._attend(taken, until)
                return await self._place(taken, until) if isinstance(standing, Place) else standing
            except WireLost as error:
                self.holdings.forget(taken)
                if error.late:
                    # The server process may take it yet, and hold it until it sees that its client is gone. A pooling
                    # proxy sees to that by itself, and may have given the process to another client by then.
                    if bound.wire.direct:
                        self.holdings.doomed[claim.id] = bound.wire.server_pid
                    raise lost(self.address, error, committing=True) from error
                if fresh or self.holdings.closing:
                    raise lost(self.address, error, committing=False) from error
                # Nothing can be held on a connection that is gone. What its owner held there is lost, and said to be.
                self._drop_idle()
            finally:
                self._leave(bound, claim.owner)
        raise AssertionError("unreachable")

    async def _attend(self, taken: Taken, until: float) -> Any:
        """Wait a little for the server's word on what was sent."""
        bound, claim = taken.bound, taken.claim
        patience = min(until - GRACE, clock.now() + ATTEND) if claim.waits else until
        if not await bound.wire.answered(patience):
            if not claim.waits:
                bound.wire.close()
                raise WireLost("no answer came in time", late=True)
            taken.told = False
            self.holdings.look_up()
            return Place(1)
        return await self._settle(taken, until)

    async def _settle(self, taken: Taken, until: float) -> Any:
        bound, claim = taken.bound, taken.claim
        try:
            (found,) = await bound.wire.answer(until)
        except SqlError as error:
            bound.pending = None
            self.holdings.forget(taken)
            await self._give_up(taken, until)
            if error.state == "40P01":
                return Deadlocked(self._cycle(claim, error))
            raise unavailable(self.address, error) from error
        if found is None:
            bound.pending = None
            self.holdings.forget(taken)
            return Refused(await self._blocker(taken, until))
        taken.token, pid = found
        # Not before: what is pending when an interrupt comes is given up.
        bound.pending = None
        assert taken.token is not None
        if pid != bound.wire.server_pid:
            # It may be held by a server process of the pool now.
            bound.wire.close()
            raise EngineFailure(self.address, EXPLANATION, "unknown")
        if claim.max_hold is not None:
            taken.ends = clock.now() + claim.max_hold
        return taken.granted()

    async def look(self, claim: Claim, until: float) -> Any:
        reason = self.holdings.lost.pop(claim.id, None)
        if reason is not None:
            return Gone(reason)
        taken = self.holdings.taken.get(claim.id)
        if taken is None:
            if self.holdings.turns.knows(name_of(claim), claim.id):
                return await self.enter(claim, until)
            return Gone("it was never asked for")
        standing = await self._look_at(taken, until)
        if not isinstance(standing, Place):
            self.holdings.end_turn(claim)
        return standing

    async def _look_at(self, taken: Taken, until: float) -> Any:
        if taken.token is not None:
            return taken.granted()
        bound = taken.bound
        await self._join(bound, until)
        try:
            if taken.token is not None:
                return taken.granted()
            if bound.pending is not taken:
                return Gone("it was withdrawn")
            standing = await self._attend(taken, until)
            return await self._place(taken, until) if isinstance(standing, Place) else standing
        except WireLost as error:
            raise lost(self.address, error, committing=False) from error
        finally:
            self._leave(bound, taken.claim.owner)

    # Giving back

    async def release(self, claim: Claim, until: float) -> Done | Gone:
        taken = self.holdings.taken.get(claim.id)
        if taken is None or taken.token is None:
            await self._reap()
            return Gone(self.holdings.lost.pop(claim.id, "it was never granted"))
        if await self._give(taken, until):
            return Done()
        return Gone(self.holdings.lost.pop(claim.id, CONNECTION_LOST))

    async def leave(self, claim: Claim, unanswered: bool, until: float) -> Done:
        # At once: a withdrawal that is not answered must not keep those behind it waiting.
        self.holdings.end_turn(claim)
        taken = self.holdings.taken.get(claim.id)
        if taken is not None:
            await self._give(taken, until)
        else:
            await self._reap()
        if claim.id in self.holdings.doomed:
            await self._end_process(self.holdings.doomed[claim.id], until)
            self.holdings.doomed.pop(claim.id, None)
        self.holdings.lost.pop(claim.id, None)
        return Done()

    async def _end_process(self, pid: int, until: float) -> None:
        """End a server process whose connection was given up, and wait for its end; EngineUnavailable otherwise."""
        ask = (
            f"SELECT coalesce(json_agg(pg_terminate_backend(pid)), '[]') FROM pg_stat_activity WHERE pid = {pid}"
            f" AND application_name = current_setting('application_name') AND usename = session_user"
        )
        while await self._ask(ask, until):
            if clock.now() >= until:
                raise lost(self.address, f"the server process {pid} has not ended yet", committing=True)
            await self.connections.sockets.pause(0.02)

    async def _give(self, taken: Taken, until: float) -> bool:
        """Unlock, or stop waiting; whether it was held."""
        claim, bound = taken.claim, taken.bound
        if bound.home is not self:
            return await self._give_at_home(taken, until)
        await self._join(bound, until)
        try:
            if self.holdings.taken.get(claim.id) is not taken:
                return False  # it was given back meanwhile, and its connection may be another owner's by now
            interrupted = bound.pending
            if interrupted is not None:
                await self._interrupt(interrupted, until)
            held = True
            if taken.token is not None:
                await bound.wire.post_prepared(keys.give(claim), taken.keys.values, until)
                ((held, _),) = await bound.wire.answer(until)
            self.holdings.forget(taken)
            if interrupted is not None and interrupted is not taken and interrupted.token is None:
                # It has to stand at the end of the line again: a connection does one thing at a time.
                await bound.wire.post_prepared(keys.take(interrupted.claim), interrupted.keys.values, until)
                bound.pending, interrupted.told = interrupted, False
                self.holdings.look_up()
            return bool(held)
        except SqlError as error:
            # Another server process, or one that another client has reset: what was held is out of our reach. Else the
            # end of the connection gives it back.
            bound.wire.close()
            self.holdings.lose(bound, CONNECTION_LOST)
            raise lost(self.address, unavailable(self.address, error).problem, committing=True) from error
        except WireLost as error:
            self.holdings.lose(bound, CONNECTION_LOST)
            if error.late:
                raise lost(self.address, error, committing=True) from error
            return False
        finally:
            self._leave(bound, claim.owner)

    async def _give_at_home(self, taken: Taken, until: float) -> bool:
        """The keeper gives back what a caller took: in this thread if that was a thread's, else in its loop."""
        home: AdvisoryVerbs = taken.bound.home
        if home.loop is None:
            return await home._give(taken, until)
        return run_in_loop(home.loop, home._give(taken, until), self.address, until)

    async def _interrupt(self, pending: Taken, until: float) -> None:
        """Make the server give up waiting. It may have been granted at the last moment."""
        bound = pending.bound
        patience = 0.0
        while not await bound.wire.answered(min(until, clock.now() + patience)) and clock.now() < until:
            # A cancel that comes before the server process has read the statement does nothing: again, after a while.
            await bound.wire.cancel(until)
            patience = min(0.2, 2 * patience + 0.02)
        try:
            found = await bound.wire.answer(until)
        except SqlError:
            found = []
        if not found:
            # Refused or never sent; or an interrupt came when the answer had been read already.
            await self._give_up(pending, until)
        elif found[0] is not None:
            pending.token = found[0][0]
        bound.pending = None

    async def _give_up(self, taken: Taken, until: float) -> None:
        """A wait ended with an error, which gives back nothing of what the session has taken before it.

        If it was cancelled at the last moment, that may be the lock itself.
        """
        bound = taken.bound
        if not bound.wire.alive:
            return
        twice = any(each is not taken and each.keys == taken.keys for each in bound.claims.values())
        # A session takes again what it has, and nobody can tell how often it did: its end sees to that.
        bound.stained = bound.stained or twice
        statement = b"hf_give_tag" if twice else keys.give_up(taken.claim)
        await bound.wire.post_prepared(statement, taken.keys.values, until)
        await bound.wire.answer(until)

    # The session

    async def open_session(self, session: Session, until: float) -> Opened:
        sent = clock.now()
        await self._alive([], until)
        # What an earlier session left behind was said to be lost.
        self.holdings.hang_up()
        self.holdings.lost.clear()
        self.holdings.closing = False
        self.holdings.good_until = sent + session.ttl
        return Opened(session.ttl)

    async def renew(self, session: str, until: float) -> Renewed | SessionOver:
        """Ask the server which of our connections it still has: one request for everything that is held."""
        sent = clock.now()
        # Only those that were asked about: others may have come into use while the server answered.
        asked = self.holdings.watched()
        there = await self._alive([bound.wire.server_pid for bound in asked], until)
        self.holdings.good_until = sent + self.holdings.ttl
        for bound in asked:
            if bound.wire.server_pid not in there and bound.claims:
                self.holdings.lose(bound, CONNECTION_LOST)
        return Renewed(self.holdings.ttl, tuple(self.holdings.lost.items()))

    async def _alive(self, pids: list[int], until: float) -> set[int]:
        """Which of these server processes are still there."""
        sql = (
            "SELECT coalesce(json_agg(pid), '[]') FROM pg_stat_activity"
            f" WHERE pid = ANY(ARRAY[{','.join(map(str, pids))}]::int[])"
        )
        return set(await self._ask(sql, until))

    async def _ask(self, sql: str, until: float) -> Any:
        """One question on a connection that nobody's locks are on."""
        for fresh in (False, True):
            wire = await self.connections.take(until)
            try:
                if not self.holdings.belongs(wire):
                    wire.close()
                    raise EngineFailure(self.address, ELSEWHERE, "not done")
                (found,) = await wire.send([sql], until)
                return found
            except SqlError as error:
                raise unavailable(self.address, error) from error
            except WireLost as error:
                if fresh or error.late:
                    raise lost(self.address, error, committing=False) from error
                self._drop_idle()
            finally:
                self.connections.give(wire)
        raise AssertionError("unreachable")

    async def sweep(self, until: float) -> Done:
        return Done()

    async def close_session(self, session: str, until: float) -> Done:
        """The end of the connections is the end of all that they hold, and it is waited for.

        A server process that nobody waits for may go on holding for a while; one that itself waits for a lock would
        notice a second later that its client is gone, and stand in line until then.
        """
        self.holdings.closing = True
        used = [bound.wire for bound in self.holdings.watched()]
        try:
            if used:
                patience = ", 1000" if used[0].connection.server_version >= 140000 else ""
                processes = [wire.server_pid for wire in used]
                end = f"pg_terminate_backend(pid{patience})"
                await self._ask(f"SELECT to_json(count({end})) FROM unnest(ARRAY{processes}) AS pid", until)
        finally:
            self.holdings.hang_up()
        return Done()
