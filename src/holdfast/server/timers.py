"""Moments at which something ends, by key: one timer of the loop for all of them, and a bounded number in one turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from holdfast.core.table.ends import NEVER, Ends

K = TypeVar("K", bound=Hashable)
GRAIN = 0.001
"""Seconds by which a timer of the loop may be early."""
MOST_COST = 2_000
"""What the ends in one turn may cost the table: about 5 ms."""


class Timers(Generic[K]):
    """Calls `over` with each key whose moment has come; `cost` says what the table was asked so far."""

    def __init__(self, loop: asyncio.AbstractEventLoop, over: Callable[[K], object], cost: Callable[[], int]) -> None:
        self._loop, self._over, self._cost = loop, over, cost
        self._ends: Ends[K] = Ends()
        self._timer: asyncio.TimerHandle | None = None
        self._next = NEVER
        """When it looks for keys whose moment has come."""

    def __contains__(self, key: object) -> bool:
        return key in self._ends.moments

    def __len__(self) -> int:
        return len(self._ends)

    def moment(self, key: K) -> float | None:
        """When this ends."""
        return self._ends.moments.get(key)

    def put(self, key: K, moment: float) -> None:
        """It ends then, in the time of the loop."""
        self._ends.put(key, moment)
        if moment < self._next:
            self._arm()

    def drop(self, key: K) -> float | None:
        """It does not end by itself. When it would have; None if it was not known."""
        moment = self._ends.moments.get(key)
        self._ends.drop(key)
        return moment

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = self._ends.first()
        self._timer = None if self._next == NEVER else self._loop.call_at(self._next, self._look)

    def _look(self) -> None:
        self._timer, self._next = None, 0.0
        now, most = self._loop.time() + GRAIN, self._cost() + MOST_COST
        try:
            while self._cost() < most and (due := self._ends.dead(now, 1)):
                self._end(due[0])
        finally:
            if self._ends.first() <= now:
                # The others after other requests have had their turn.
                self._loop.call_soon(self._loop.call_soon, self._look)
            else:
                self._arm()

    def _end(self, key: K) -> None:
        moment = self.moment(key)
        try:
            self._over(key)
        finally:
            if self.moment(key) == moment:
                self._ends.drop(key)
