"""What opens when it has been counted down."""

from __future__ import annotations

from holdfast.locks.latch import LatchFront
from holdfast.locks.spec import check_seconds
from holdfast.runtime.blocking import run


class Latch:
    """Opens for good when it has been counted down to zero."""

    def __init__(self, front: LatchFront) -> None:
        self._front = front

    def count_down(self, n: int = 1) -> int:
        """Count down; how many are missing now."""
        return run(self._front.count_down(n))

    def wait(self, wait: float | None = None) -> None:
        """Wait until the count is zero. NotAcquired if that takes longer than `wait`."""
        run(self._front.wait(check_seconds("wait", wait)))
