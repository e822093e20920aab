"""An event loop whose selector a test can look at, and work in it that a signal handler interrupts."""

from __future__ import annotations

import asyncio
import gc
import selectors
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

from tests.faults.injection import Injected, Moments

CALL_SOON = asyncio.BaseEventLoop.call_soon.__code__


class TaskMoments(Moments):
    """All but those inside `call_soon`: an interrupt there makes asyncio forget the task that a future would wake."""

    def _event(self, frame: FrameType, event: str, argument: object) -> None:
        found: FrameType | None = frame
        while found is not None and found.f_code is not CALL_SOON:
            found = found.f_back
        if found is None:
            super()._event(frame, event, argument)


class WatchedLoop:
    """A loop whose selector can be looked at."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.loop = asyncio.SelectorEventLoop(self.selector)
        self.loop.set_exception_handler(lambda *_: None)

    @property
    def watched(self) -> set[object]:
        """The descriptors that the loop believes to watch."""
        return set(self.selector.get_map())

    def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do this in a task."""

        async def in_task() -> Any:
            return await work()

        return self.loop.run_until_complete(in_task())

    def struck(self, work: Callable[[], Awaitable[Any]], at: int) -> bool:
        """Do this, interrupted at a moment; whether there was such a moment."""
        moments = TaskMoments(at, Injected)
        try:
            moments.run(lambda: self.run(work))
        except Injected:
            return True
        return moments.seen > at

    def settle(self) -> None:
        """Let the loop do what is to be done."""
        for _ in range(5):
            self.run(lambda: asyncio.sleep(0))
        gc.collect()
