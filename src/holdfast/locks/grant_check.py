"""Whether the engine still has every grant: asked after its connections were cut.

A server that was restored from a copy, or a replica that was behind and took over, comes back with an older state.
The session may be in that state, so that heartbeats are answered, and grants that were made later are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.table.commands import OLDER_STATE, RECONNECTED, Notice
from holdfast.errors import EngineUnavailable
from holdfast.locks.session import Session
from holdfast.model import Gone, Granted, Place

if TYPE_CHECKING:
    from holdfast.locks.hold import Hold
    from holdfast.locks.keeper import Keeper


class GrantCheck:
    """Asks for each grant of the session once, with the keeper's verbs. Heartbeats go first."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._wanted = False

    def hear(self, notice: Notice) -> None:
        """Take a notice from the engine, in any thread; the keeper is awake or about to be."""
        if notice.what == RECONNECTED:
            self._wanted = True

    async def run(self) -> None:
        """Do what is wanted. One grant that the engine does not have as it was given ends the session."""
        session = self._keeper.client.session
        if not self._wanted or session is None or session.over is not None or session.in_danger:
            return
        self._wanted = False
        for hold in list(session.holds.values()):
            if self._keeper.stopping or session.over is not None:
                return
            try:
                there = await self._is_there(session, hold)
            except EngineUnavailable:
                self._wanted = True
                return
            if not there:
                # Claims that were given back meanwhile may be in that state too: they end with the session.
                self._keeper.end(session, OLDER_STATE)
                return
            await self._keeper.keep_alive()

    async def _is_there(self, session: Session, hold: Hold) -> bool:
        standing = await self._keeper.verbs.look(hold.claim, self._keeper.before_beat())
        match standing:
            case Granted():
                return standing.token == hold.token
            case Place():
                return False
            case Gone():
                # One that was taken from us has a reason, which comes with the heartbeat.
                await self._keeper.beat(session)
                return session.in_danger or not _is_held(session, hold)
        return True


def _is_held(session: Session, hold: Hold) -> bool:
    """Whether it is held as far as this client knows, and not being given back."""
    return session.holds.get(hold.claim.id) is hold and not hold.released and not hold.withdrawn
