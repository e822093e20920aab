"""Carries commands to whichever server leads, for the session that they belong to.

Written once: the wire under it blocks or awaits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol

from hiredis import ReplyError

from holdfast.core.backoff import full_jitter
from holdfast.core.table import commands as cmd
from holdfast.core.table.lines import DONE
from holdfast.engines.holdfast import words
from holdfast.engines.holdfast.desk import Desk
from holdfast.engines.holdfast.route import TurnedAway
from holdfast.engines.resp.wire import Address, Lost
from holdfast.errors import EngineFailure
from holdfast.model import Granted, LockInfo, Place

TRY_FOR = 1.0
"""How long one of several servers is tried before the next one is."""
SILENT_FOR = 2.5
"""How long one of several may leave a request unanswered that can be repeated, before the others are asked."""
FIRST_PAUSE, LAST_PAUSE = 0.01, 0.2
OVER = [b"over"]
CLOSED = "the client was closed"


class Link(Protocol):
    """A connection that is logged in."""

    address: Address
    problem: str | None
    session: str | None

    def leave(self, problem: str) -> None:
        """End it, as soon as those who have asked have their replies."""

    def end(self, problem: str) -> None: ...


class Wire(Protocol):
    """What makes connections and speaks over them."""

    async def open(self, address: Address, until: float) -> Link: ...

    def call(self, link: Any, request: words.Request | words.Step, until: float) -> Awaitable[Any]: ...

    async def pause(self, seconds: float) -> None: ...

    def lock(self) -> Any:
        """What one at a time has, and gives back by `release`."""

    async def take(self, lock: Any, until: float) -> bool:
        """Wait for it; whether it was had in time."""


Carry = Callable[[cmd.Command, float], Coroutine[Any, Any, Any]]
"""Sends a command by another port."""

CLAIMS = frozenset({cmd.Enter, cmd.Release, cmd.HandOver, cmd.Adopt})
"""What only the connection for claims may say, so that a session's claims have one order."""


MOST = frozenset({cmd.Enter, cmd.Release, cmd.Leave})
"""What nearly all commands are, and nothing is to be seen to but the answer."""

STANDS = frozenset({Granted, Place})
"""The answers to a claim that holds or is in line."""


class Port:
    """One connection at a time, made when it is needed, and made again when it is lost."""

    def __init__(self, desk: Desk, wire: Wire, role: tuple[str, ...], claims: Carry | None = None) -> None:
        self.desk, self.wire, self.role = desk, wire, role
        self._claims = claims
        """The keeper's way to the connection for claims."""
        self.link: Link | None = None
        self._closed = False
        self._connecting: Any = wire.lock()

    def call(self, command: cmd.Command, until: float) -> Coroutine[Any, Any, Any]:
        """The reply; EngineUnavailable says whether the command may have been carried out."""
        kind = type(command)
        if self._claims is not None and kind in CLAIMS:
            return self._claims(command, until)
        return self._carry(words.ENCODERS[kind](command), until) if kind in MOST else self._call(command, until)

    async def _call(self, command: cmd.Command, until: float) -> Any:
        """The same for all that is more than one request and its answer, or less."""
        if isinstance(command, cmd.Sweep):
            return DONE  # the server clears away the dead by itself
        if isinstance(command, cmd.List):
            return await self._list(command, until)
        if isinstance(command, cmd.Break):
            return await self._break(command, until)
        if isinstance(command, cmd.Renew):
            return await self._renew(command, until)
        if isinstance(command, cmd.Look):
            handed = self.desk.handed.pop(command.claim.id, None)
            if handed is not None:
                # It lives no longer than our own last heartbeat, and the session's deadline counts from that:
                # there is nothing to confirm.
                return handed
        if isinstance(command, cmd.Open):
            session = command.session.id
            found = await self._carry(words.opening(command, self.desk.secret(session), self.role), until)
            if isinstance(found, cmd.Opened) and self.link is not None:
                self.link.session = session
            return found
        return await self._carry(words.ENCODERS[type(command)](command), until)

    async def _list(self, command: cmd.List, until: float) -> tuple[LockInfo, ...]:
        """All parts of a listing. What changes between two of them may be seen or not; no name is seen twice."""
        found: list[LockInfo] = []
        cursor: bytes | None = None
        patience = until - self.desk.now()
        while True:
            locks, cursor = await self._carry(words.listing(command, cursor), until)
            found += locks
            if cursor is None:
                return tuple(found)
            # A limit for an answer, not for as many as there are.
            until = self.desk.now() + patience

    async def _break(self, command: cmd.Break, until: float) -> cmd.BreakUnderWay:
        """All parts of a break. What a part has broken stays broken if a later one fails."""
        found: tuple[str, ...] = ()
        cursor: bytes | None = None
        patience = until - self.desk.now()
        while True:
            try:
                claims, cursor = await self._carry(words.breaking(command, cursor), until)
            except EngineFailure as error:
                if found and error.outcome == "not done":
                    raise self._unavailable(error.problem, sent=True) from error
                raise
            found += claims
            if cursor is None:
                return cmd.BreakUnderWay(found)
            until = self.desk.now() + patience

    async def _renew(self, command: cmd.Renew, until: float) -> cmd.Renewed | cmd.SessionOver:
        """A heartbeat, and as many more as it takes to hear of all claims that are gone."""
        reply: cmd.Renewed | cmd.SessionOver = await self._carry(words.ENCODERS[cmd.Renew](command), until)
        gone: tuple[tuple[str, str], ...] = ()
        while isinstance(reply, cmd.Renewed):
            gone += reply.gone
            if not reply.more:
                return replace(reply, gone=gone)
            reply = await self._carry(words.ENCODERS[cmd.Renew](cmd.Renew(command.session, gone[-1][0])), until)
        return reply

    async def _carry(self, request: words.Request | words.Step, until: float) -> Any:
        """What a request is answered. Goes on trying while it may and there is time."""
        desk, expects = self.desk, request.expects
        new = expects not in desk.expected
        if expects:
            desk.expected.add(expects)
        repeated = False
        pauses: Iterator[float] | None = None
        try:
            while True:
                link, limit = self.link, until
                try:
                    if link is None or link.problem is not None:
                        link = None
                        link = await self._connected(until)
                    if desk.route.replicated and request.repeats:
                        # It may stand still, or be cut off, while another one leads.
                        limit = min(until, desk.now() + SILENT_FOR)
                    known = link.session == request.session or await self._attach(link, request.session, limit)
                    reply = await self.wire.call(link, request, limit) if known else OVER
                    if not isinstance(reply, ReplyError):
                        break
                    problem = self._understand(link, reply, repeated)
                except TurnedAway as away:
                    raise self._unavailable(away.problem, repeated) from away
                except Lost as lost:
                    repeated = self._lose(link, lost, request, limit, until) or repeated
                    problem = lost
                if pauses is None:
                    pauses = full_jitter(FIRST_PAUSE, LAST_PAUSE, desk.uniform)
                pause = next(pauses)
                if desk.now() + pause >= until:
                    raise self._unavailable(str(problem), repeated) from problem
                await self.wire.pause(pause)
        except EngineFailure as error:
            if new and error.outcome == "not done":
                # It never came there, and nobody withdraws it.
                desk.forget(expects)
            raise
        found = request.decode(reply)
        if expects:
            if type(found) not in STANDS:
                desk.forget(expects)
        elif request.ends:
            desk.forget(request.ends)
            if repeated and words.was_done_before(found):
                return DONE
        return found

    def _lose(
        self, link: Link | None, lost: Lost, request: words.Request | words.Step, limit: float, until: float
    ) -> bool:
        """A try is over without an answer; whether it may have been carried out. Raises if it may not be repeated."""
        sent = link is not None and lost.sent
        if sent and (not request.repeats or (lost.silent and limit == until)):
            raise self._unavailable(lost.problem, True) from lost
        if link is not None and lost.silent and limit < until:
            self._desert(link, lost.problem)
        # The claim id makes a repeat safe: it finds what the first try has done.
        return sent

    def _understand(self, link: Link, error: ReplyError, repeated: bool) -> BaseException:
        """What an error reply asks us to do before we try again; raises if trying again is of no use."""
        word, _, rest = str(error).partition(" ")
        if word != "HFLIMIT" and self.desk.route.follow(link.address, error):
            # Others have asked here too, and are told the same: that they were not heard of, not that it is unknown.
            self._leave(link)
        elif word == "HFDETACHED":
            link.session = None
        elif word == "HFTURN":
            return error  # others had their turn first, and nothing was done
        elif word == "HFINVALID" and not repeated:
            raise words.invalid(rest)
        else:
            raise self._unavailable(str(error), repeated)
        return error

    def _desert(self, link: Link, problem: str) -> None:
        """A server that says nothing: the others are asked first from now on."""
        self.desk.route.failed(link.address)
        if self.link is link:
            self.link = None
        link.end(problem)

    def _unavailable(self, problem: str, sent: bool) -> EngineFailure:
        return EngineFailure(self.desk.address, problem, "unknown" if sent else "not done")

    async def _connected(self, until: float) -> Link:
        """The connection, made by one for all that want it."""
        link = self.link
        if link is not None and link.problem is None:
            return link
        if self._closed:
            raise TurnedAway(CLOSED)
        async with self._turn(until):
            if self.link is not None and self.link.problem is None:
                return self.link
            problems: list[str] = []
            for address in self.desk.route.addresses:
                if problems and self.desk.now() >= until:
                    break
                try:
                    link = await self.wire.open(address, min(until, self.desk.now() + TRY_FOR))
                except TurnedAway:
                    raise
                except Lost as lost:
                    problems.append(lost.problem)
                    self.desk.route.failed(address)
                else:
                    self.link = link
                    if self._closed:
                        # Meanwhile: whoever closed did not see this one.
                        link.end(CLOSED)
                        raise TurnedAway(CLOSED)
                    return link
            raise Lost("; ".join(dict.fromkeys(problems)), sent=False)

    @asynccontextmanager
    async def _turn(self, until: float) -> AsyncIterator[None]:
        """One connects or resumes for all; Lost if another one does that for too long."""
        if not await self.wire.take(self._connecting, until):
            raise Lost("the connection was not made in time", sent=False, silent=True)
        try:
            yield
        finally:
            self._connecting.release()

    async def _attach(self, link: Link, session: str | None, until: float) -> bool:
        """Speak for a session over this connection; False if there is no such session any more."""
        if session is None:
            return True  # it is a request of nobody's
        async with self._turn(until):
            if link.session == session:
                return True
            secret = self.desk.known_secret(session)
            if secret is None:
                return False
            try:
                reply = await self.wire.call(link, words.resuming(session, secret, self.role), until)
            except Lost as lost:
                # It changes nothing, so nothing was done yet.
                raise Lost(lost.problem, sent=False, silent=lost.silent) from lost
            if isinstance(reply, ReplyError):
                self.desk.route.follow(link.address, reply)
                self._leave(link)
                raise Lost(str(reply), sent=False)
            if reply[0] == b"over":
                self.desk.ended(session)
                return False
            link.session = session
            return True

    async def resume(self, until: float) -> bool:
        """Be connected and speak for the session, so that pushes come; False if there is none."""
        session = self.desk.session
        if session is None:
            return False
        link = await self._connected(until)
        return link.session == session or await self._attach(link, session, until)

    def leave(self) -> None:
        """The server is about to go: ask it nothing more, and let those who have asked hear their answers."""
        if self.link is not None:
            self._leave(self.link)

    def _leave(self, link: Link) -> None:
        if self.link is link:
            self.link = None
        link.leave("the server sends its clients elsewhere")

    def close(self) -> None:
        self._closed = True
        if self.link is not None:
            self.link.end(CLOSED)
