"""Where several wait for each other."""

from __future__ import annotations

from holdfast.locks.barrier import BarrierFront
from holdfast.locks.spec import check_seconds
from holdfast.runtime.blocking import run


class Barrier:
    """Where `parties` wait for each other."""

    def __init__(self, front: BarrierFront) -> None:
        self._front = front

    def wait(self, wait: float | None = None) -> int:
        """Wait for the other parties; the generation that went through. NotAcquired if they do not come in time."""
        return run(self._front.wait(check_seconds("wait", wait)))
