"""What opens when it has been counted down, awaited."""

from __future__ import annotations

from holdfast.locks.latch import LatchFront
from holdfast.locks.spec import check_seconds


class Latch:
    """Opens for good when it has been counted down to zero."""

    def __init__(self, front: LatchFront) -> None:
        self._front = front

    async def count_down(self, n: int = 1) -> int:
        """Count down; how many are missing now."""
        return await self._front.count_down(n)

    async def wait(self, wait: float | None = None) -> None:
        """Wait until the count is zero. NotAcquired if that takes longer than `wait`."""
        await self._front.wait(check_seconds("wait", wait))
