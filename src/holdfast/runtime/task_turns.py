"""Turns of the tasks of a loop on what few may use at a time."""

from __future__ import annotations

import asyncio
from collections import deque

from holdfast.runtime import clock


class TaskTurns:
    """Turns of tasks."""

    def __init__(self, loop: asyncio.AbstractEventLoop, number: int = 1) -> None:
        self._free, self._loop = number, loop
        self._line: deque[asyncio.Future[bool]] = deque()

    async def take(self, until: float) -> bool:
        if self._free and not self._line:
            self._free -= 1
            return True
        mine: asyncio.Future[bool] = self._loop.create_future()
        self._line.append(mine)
        timer = self._loop.call_later(max(0.0, until - clock.now()), settle, mine, False)
        try:
            return await asyncio.shield(mine)
        except asyncio.CancelledError:
            if mine.done() and mine.result():
                self.give()
            settle(mine, False)
            raise
        finally:
            timer.cancel()

    def give(self) -> None:
        while self._line:
            following = self._line.popleft()
            if not following.done():
                following.set_result(True)
                return
        self._free += 1


def settle(future: asyncio.Future[bool], value: bool) -> None:
    """Set a result, unless there is one."""
    if not future.done():
        future.set_result(value)
