"""A store that remembers nothing after the process ends: for tests, and where that is enough."""

from __future__ import annotations

import time
from collections.abc import Sequence

from holdfast.core.table import Dictionary
from holdfast.core.table.changes import Change
from holdfast.runtime import clock
from holdfast.server.store import Figures


class MemoryStore:
    """Keeps nothing. Not durable: a restart forgets every lock, and tokens go on from the time of day."""

    address = "memory://"
    scheme = "memory"
    durable = False
    shortest_ttl = patience = 0.0

    def __init__(self) -> None:
        self._batches = self._changes = 0

    def load(self) -> Dictionary:
        """An empty table, whose tokens begin at the time in µs, so that they do not come again after a restart."""
        return Dictionary(first_number=int(time.time() * 1_000_000))

    def may_answer(self) -> bool:
        """There is no other server."""
        return True

    def now(self) -> float:
        return clock.now()

    async def keep(self, changes: Sequence[Change], may_block: bool = False) -> None:
        self._batches += 1
        self._changes += len(changes)

    def has_room(self) -> bool:
        return True

    def figures(self) -> Figures:
        return Figures(batches=self._batches, changes=self._changes)

    def close(self) -> None:
        """Nothing is open."""
