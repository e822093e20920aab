"""Items that the tasks of a loop borrow in turn: connections, or permission to go on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from holdfast.runtime import clock
from holdfast.runtime.asyncio import AGAIN
from holdfast.runtime.call_pool import LOOK, Items, PoolItem
from holdfast.runtime.task import LoopTask

T = TypeVar("T")


class _Place:
    """A task's position in a queue."""

    __slots__ = ("task", "woken")

    def __init__(self, task: LoopTask | None) -> None:
        self.task = task
        self.woken: asyncio.Future[bool] | None = None


class TaskPool(Items[T]):
    """Items that tasks wait for, first come, first served.

    An exception that a signal handler raises in the loop's thread can end a task at any bytecode, also between
    taking an item and giving it back. So an item belongs to a task, and a task that ended has no item and no position.
    """

    def __init__(self, most: int, discard: Callable[[T], object], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(most, discard)
        self._loop = loop
        self._queue: deque[_Place] = deque()

    async def take(self, until: float) -> PoolItem[T] | None:
        """Borrow an item; None if `until` comes first."""
        task = asyncio.current_task(self._loop)
        item = None if self._queue else self.borrow(task)
        return item or await self._wait(task, until)

    async def _wait(self, task: LoopTask | None, until: float) -> PoolItem[T] | None:
        place = _Place(task)
        self._queue.append(place)
        try:
            while True:
                item = self.borrow(task) if self._is_first(place) else None
                left = until - clock.now()
                if item is not None or left <= 0:
                    return item
                # A task that an exception has ended wakes no other one.
                await self._sleep(place, min(left, LOOK))
        finally:
            with suppress(ValueError):
                self._queue.remove(place)
            self._wake_first()

    def _is_first(self, place: _Place) -> bool:
        """Whether no task is before this one, except those that ended in the queue or have come back."""
        while self._queue:
            first = self._queue[0]
            if first is place or first.task is None:
                break
            if first.task is not place.task and not first.task.done():
                break
            self._queue.popleft()
        return bool(self._queue) and self._queue[0] is place

    async def _sleep(self, place: _Place, seconds: float) -> None:
        woken = place.woken = self._loop.create_future()
        # Two: a signal handler may raise in the first one before it has woken the task.
        timers = [self._loop.call_later(seconds + more, settle, woken, False) for more in (0.0, AGAIN)]
        try:
            await woken
        finally:
            for timer in timers:
                timer.cancel()

    def give(self, item: PoolItem[T]) -> None:
        """Take an item back, with the value that it carries now."""
        item.give()
        self._wake_first()

    def _wake_first(self) -> None:
        """Wake the task that waits longest, if there is something for it."""
        if self._queue and any(item.loan.over for item in self.items) and self._queue[0].woken is not None:
            settle(self._queue[0].woken, True)


class TaskTurns:
    """A turn that one task has at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._pool: TaskPool[None] = TaskPool(1, lambda _: None, loop)

    async def take(self, until: float) -> bool:
        """Wait for the turn; False if `until` comes first."""
        return await self._pool.take(until) is not None

    def give(self) -> None:
        """The turn is over."""
        self._pool.give(self._pool.items[0])


def settle(future: asyncio.Future[bool], value: bool) -> None:
    """Set a result, unless there is one."""
    if not future.done():
        future.set_result(value)
