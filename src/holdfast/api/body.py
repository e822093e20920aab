"""The body of an `async with`: cancelled when the lock under it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from holdfast.errors import LockLost
from holdfast.locks.hold import Hold


class Body:
    """What runs between taking a lock and giving it back, in one task.

    When the lock is lost the task is cancelled, and `end` turns that cancellation into
    LockLost. A cancellation that came from elsewhere stays one.
    """

    def __init__(self, holds: Sequence[Hold], give_back: Callable[[], Awaitable[None]]) -> None:
        task = holds[0].task()
        assert task is not None
        self._task, self._give_back = task, give_back
        self._cancels_before = task.cancelling()
        self._mark = f"{holds[0].claim.name!r} was lost"
        """By this message, and no equal one, our own cancellation is known."""
        self._running, self._cancelled = True, False
        self._unhook = [hold.when_lost(self._lose) for hold in holds]

    def _lose(self) -> None:
        if self._running and not self._cancelled:
            self._cancelled = True
            # A TaskGroup whose failure the body handled leaves its cancellation counted: that one is no news.
            self._handled_before = self._task.cancelling()
            self._task.cancel(self._mark)

    async def end(self, error: BaseException | None) -> None:
        """Release. What the body raised comes first; a loss is noted on it."""
        self._running = False
        while self._unhook:
            self._unhook.pop()()
        if self._cancelled and not isinstance(error, asyncio.CancelledError):
            # The body ended before the cancellation reached it: take it out of the way.
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError as late:
                error = error or late
        ours = self._cancelled and self._is_ours(error, self._task.uncancel())
        try:
            await self._give_back()
        except LockLost as lost:
            if error is None or (ours and isinstance(error, asyncio.CancelledError)):
                raise lost from None
            error.add_note(str(lost))

    def _is_ours(self, error: BaseException | None, cancels_left: int) -> bool:
        """Whether no other cancellation came since the body began, or none after ours, which is what arrived."""
        if cancels_left <= self._cancels_before:
            return True
        marked = error is not None and bool(error.args) and error.args[0] is self._mark
        return marked and cancels_left <= self._handled_before
