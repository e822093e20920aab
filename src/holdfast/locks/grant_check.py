"""Whether the engine has what this client has: asked after its connections were cut.

A server that was restored from a copy, or a replica that was behind and took over, comes back with an older state.
The session may be in that state, so that heartbeats are answered, and grants that were made later are not. Claims that
were given back since are in it, and would be kept by those heartbeats.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.core.table.commands import OLDER_STATE, RECONNECTED, Notice, SessionOver
from holdfast.engines.engine import ListingVerbs, QuietEngine
from holdfast.errors import EngineFailure
from holdfast.locks.session import Session
from holdfast.model import Gone, Granted, Place

if TYPE_CHECKING:
    from holdfast.locks.hold import Hold
    from holdfast.locks.keeper import Keeper

log = logging.getLogger("holdfast")


class GrantCheck:
    """Compares the session's claims with those at the engine, with the keeper's verbs. Heartbeats go first."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._wanted = False
        engine = keeper.client.engine
        self._after_beats = isinstance(engine, QuietEngine) and engine.checks_every_beat

    def hear(self, notice: Notice) -> None:
        """Take a notice from the engine, in any thread; the keeper is awake or about to be."""
        if notice.what == RECONNECTED:
            self._wanted = True

    def beaten(self, session: Session, claims: tuple[int, int] | None) -> None:
        """A heartbeat was confirmed, and the engine has so many claims up to this token. In any thread."""
        if self._after_beats and claims != self._known(session):
            self._wanted = True

    def _known(self, session: Session) -> tuple[int, int]:
        """How many claims the session has as far as this client knows, and the highest of their tokens.

        An earlier state lacks the newest grant, or has a claim that is over here. A request that is under way may
        also make a difference, and the comparison that follows finds nothing.
        """
        tokens = [hold.token for hold in list(session.holds.values())]
        return len(self._keeper.client.known_claims(session)), max(tokens, default=0)

    async def run(self) -> None:
        """Do what is wanted. One grant that the engine does not have as it was given ends the session."""
        session = self._keeper.client.session
        if not self._wanted or session is None or session.over is not None or session.in_danger:
            return
        self._wanted = False
        try:
            await self._compare(session)
        except EngineFailure:
            self._wanted = True

    async def _compare(self, session: Session) -> None:
        """Look at every grant that the engine does not list. EngineUnavailable if it is not known of all of them."""
        listed = await self._listed(session)
        await self._keeper.keep_alive()
        for hold in list(session.holds.values()):
            if self._keeper.stopping or session.over is not None:
                return
            if listed.get(hold.claim.id) == hold.token:
                continue
            if not await self._is_there(session, hold):
                # Claims that were given back meanwhile may be in that state too: they end with the session.
                self._keeper.end(session, OLDER_STATE)
                return
            await self._keeper.keep_alive()

    async def _listed(self, session: Session) -> dict[str, int | None]:
        """The tokens of the claims that the engine has. Those that are over here are withdrawn."""
        keeper = self._keeper
        if not isinstance(keeper.verbs, ListingVerbs):
            return {}
        found = await keeper.verbs.own_claims(session.id, keeper.before_beat())
        if isinstance(found, SessionOver):
            keeper.client.session_ended(session, found)
            return {}
        known = keeper.client.known_claims(session)
        for claim, _ in found:
            if claim.id not in known:
                # It may also have ended by itself since it was listed: to withdraw that again changes nothing.
                log.info("%s: withdrawing a claim that the engine still has: %r", keeper.client, claim.name)
                keeper.withdraw(claim, unanswered=False)
        return {claim.id: token for claim, token in found}

    async def _is_there(self, session: Session, hold: Hold) -> bool:
        """Whether the engine has a grant as it was given; EngineUnavailable if that is not known."""
        standing = await self._keeper.verbs.look(hold.claim, self._keeper.before_beat())
        match standing:
            case Granted():
                return standing.token == hold.token
            case Place():
                return False
            case Gone():
                # One that was taken from us has a reason, which comes with the heartbeat.
                await self._keeper.beat(session)
                if session.in_danger:
                    raise EngineFailure(str(self._keeper.client), "the heartbeat was not confirmed", "not done")
                return not session.has(hold)
        return True
