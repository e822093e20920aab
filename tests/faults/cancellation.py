"""Cancel a task at a chosen suspension of what it awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Literal

When = Literal["before", "next turn", "with the result", "again and again"]
"""The cancellation comes as the task suspends; in the loop's next turn; in the same turn as what the task waits for,
and just before it; or as the task suspends, and at each of the following suspensions."""
REPETITIONS = 60


class CancelAt:
    """What a coroutine awaits passes through here, and is counted."""

    def __init__(self, work: Coroutine[Any, Any, Any], chosen: int | None = None, when: When = "before") -> None:
        self._work, self._chosen, self._when = work, chosen, when
        self.seen = 0
        """How many suspensions there were."""
        self.where = ""
        """Where the task was when it was cancelled."""

    def __await__(self) -> Generator[Any, Any, Any]:
        step, argument = self._work.send, None
        while True:
            try:
                pending = step(argument)
            except StopIteration as stop:
                return stop.value
            self._suspended(pending)
            try:
                argument = yield pending
                step = self._work.send
            except BaseException as error:  # noqa: BLE001 - it is the work's
                argument, step = error, self._work.throw

    def _suspended(self, pending: Any) -> None:
        at, self.seen = self.seen, self.seen + 1
        if self._chosen is None or at < self._chosen:
            return
        if at > self._chosen + (REPETITIONS if self._when == "again and again" else 0):
            return
        self.where = self.where or place_of(self._work)
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        if self._when in ("before", "again and again"):
            task.cancel()
        elif self._when == "with the result" and pending is not None:
            # The task itself is called back after this.
            pending.add_done_callback(lambda _: task.cancel())
        else:
            loop.call_soon(task.cancel)


def place_of(work: Any) -> str:
    """The innermost line of a coroutine that is suspended."""
    place = ""
    while work is not None and getattr(work, "cr_frame", None) is not None:
        place = f"{work.cr_code.co_filename}:{work.cr_frame.f_lineno}"
        work = work.cr_await
    return place


async def count_suspensions(work: Coroutine[Any, Any, Any]) -> int:
    """How often `work` suspends when nothing is cancelled."""
    counting = CancelAt(work)
    await counting
    return counting.seen


async def cancelled_at(work: Coroutine[Any, Any, Any], chosen: int, when: When, within: float) -> CancelAt:
    """Run `work` in a task that is cancelled. AssertionError if it takes too long; an error of `work` is raised."""
    cancelling = CancelAt(work, chosen, when)

    async def run() -> None:
        await cancelling

    task = asyncio.create_task(run())
    await asyncio.wait({task}, timeout=within)
    if not task.done():
        where = place_of(work)
        task.cancel()
        raise AssertionError(f"not over within {within:g} s, cancelled at {cancelling.where}; it is at {where}")
    if not task.cancelled():
        task.result()
    return cancelling
