"""Claims that Redis has and nobody knows of.

A Redis that comes back from an older snapshot, or a failover that lost a release, has claims that
were given back long ago. Their session lives, so they would too, for as long as the client does.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.engines.redis.ledger import Ledger
from holdfast.errors import EngineFailure
from holdfast.runtime import clock

log = logging.getLogger("holdfast")

Run = Callable[..., Awaitable[Any]]
"""Runs a script by its name."""

LAID_AFTER = 6.0
"""Seconds: longer than a release or a withdrawal may be under way."""


class Ghosts:
    """Looks for them with the heartbeat. Only its keeper does that, one heartbeat after the other."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._suspected = False
        self._seen: dict[str, float] = {}
        """By claim id: when it was first found to be unknown here."""

    async def lay(self, session: str, on_record: int, run: Run, until: float) -> None:
        """Withdraw claims of the session that have been on record for a while although nobody here knows of them."""
        suspected, self._suspected = self._suspected, on_record > self._ledger.known()
        if not self._suspected:
            self._seen.clear()
        elif suspected:
            # Once may be a release on its way.
            try:
                await self._look(session, run, until)
            except EngineFailure as error:
                # The heartbeat itself was answered; the next one looks again.
                log.debug("claims on record could not be looked at: %s", error)

    async def _look(self, session: str, run: Run, until: float) -> None:
        strange: dict[str, str] = {}
        cursor = "0"
        while True:
            page = await run("record", until, session, cursor)
            words = [word.decode() for word in page[1]]
            found = zip(words[::2], words[1::2], strict=True)
            strange.update((id_, lock) for id_, lock in found if not self._ledger.knows(id_))
            cursor = page[0].decode()
            if cursor == "0":
                break
        now = clock.now()
        self._seen = {id_: self._seen.get(id_, now) for id_ in strange}
        for id_, first in self._seen.copy().items():
            if now - first >= LAID_AFTER:
                log.warning(
                    "Redis came back with claim %s on %r, which was given back before: withdrawn", id_, strange[id_]
                )
                await run("leave", until, id_, session, strange[id_], 0)
                del self._seen[id_]
