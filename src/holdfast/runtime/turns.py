"""Turns of an event loop, given by steps that never wait for anything."""

from __future__ import annotations

from collections.abc import Generator
from types import coroutine

from holdfast.runtime import clock


@coroutine
def one_turn() -> Generator[None, None, None]:
    """Wait until every other task has had a turn; what asyncio does for a sleep of 0."""
    yield


class Turns:
    """Lets a loop turn now and then between steps that never wait for anything."""

    EVERY = 0.005

    def __init__(self) -> None:
        self._last = clock.now()

    async def give(self) -> None:
        """Give the other tasks their turn, if they have not had one for a while."""
        now = clock.now()
        if now - self._last > self.EVERY:
            self._last = now
            await one_turn()
