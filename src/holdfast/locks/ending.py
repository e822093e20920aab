"""The end of a client that no caller can close: its event loop was closed, or nothing refers to it any more."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.errors import EngineUnavailable

if TYPE_CHECKING:
    from holdfast.locks.client import Client
    from holdfast.locks.keeper import Keeper
    from holdfast.locks.session import Session

log = logging.getLogger("holdfast")


class Ending:
    """Ends one client, in its keeper's thread."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self.forgotten: Client | None = None
        """The client, once nothing but its keeper refers to it."""
        self._without_loop = self._unnoticed = False
        """Whether its event loop was closed before it, and whether it was forgotten."""

    def end_with_loop(self, session: Session) -> None:
        """The event loop of the client was closed: no task of it runs any more, and none can close the client."""
        log.warning("%s: its event loop was closed before it: what it holds is released", self._keeper.client)
        self._without_loop = True
        self._end(session, "the event loop of its client was closed")

    def look(self) -> None:
        """End a client that was forgotten, unless it holds something: that stays held until the process ends."""
        client, keeper = self.forgotten, self._keeper
        if client is None or keeper.stopping:
            return
        session = client.session
        if session is not None and session.over is None:
            if session.holds:
                return
            self._unnoticed = True
            self._end(session, "its client was not closed, and nothing refers to it any more")
        else:
            self._unnoticed = client.closed = keeper.stopping = True

    def _end(self, session: Session, reason: str) -> None:
        client = self._keeper.client
        client.closed = self._keeper.stopping = True
        client.unclosed = session.id
        self._keeper.end(session, reason)

    async def finish(self) -> None:
        """End the session at the engine where the one who closed the client could not, and close the connections."""
        client, keeper = self._keeper.client, self._keeper
        try:
            while client.unclosed:
                if not (await keeper.verbs.close_session(client.unclosed, keeper.io.now() + client.call_limit)).more:
                    client.unclosed = ""
        except EngineUnavailable as error:
            log.warning("%s: its session could not be closed: %s", client, error)
        if self._unnoticed and client.io.awaits:
            # Its loop may go on, and has to close what belongs to it.
            client.io.call_back(self._close_engine, client)
        elif self._unnoticed or self._without_loop:
            self._close_engine(client)

    def _close_engine(self, client: Client) -> None:
        try:
            client.engine.close()
        except RuntimeError as error:
            # A connection of the loop cannot be closed without it, and goes with its garbage.
            log.debug("%s: a connection was not closed: %s", client, error)
