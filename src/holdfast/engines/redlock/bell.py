"""Where the keeper waits: rung by whoever wants it to look up, and when a waiter is due to try again."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.runtime import clock
from holdfast.runtime.blocking import ThreadSignal


class Bell:
    """A flag that any thread sets, and the times at which those who wait for a lock try again.

    Nobody tells a Redlock client that a lock is free, so waiters poll; the keeper's one thread
    wakes each of them when its time has come. A caller that is interrupted here leaves no lock
    behind for which the keeper would wait.
    """

    def __init__(self, wake: Callable[[str], None]) -> None:
        self._wake = wake
        self._changed = ThreadSignal()
        self._flag = False
        self._due: dict[str, float] = {}

    def set(self) -> None:
        self._flag = True
        self._changed.set()

    def clear(self) -> None:
        self._flag = False

    def is_set(self) -> bool:
        return self._flag

    def try_at(self, claim_id: str, due: float) -> None:
        """Wake the waiter with this claim then, or sooner if it is due sooner."""
        self._due[claim_id] = min(due, self._due.get(claim_id, due))
        self._changed.set()

    def forget(self, claim_id: str) -> None:
        """It waits no longer."""
        self._due.pop(claim_id, None)

    def wait(self, timeout: float | None = None) -> bool:
        """Until the bell is rung or the time is over."""
        until = None if timeout is None else clock.now() + timeout
        while True:
            self._changed.clear()
            now = clock.now()
            times = self._due.copy()
            ready = [claim_id for claim_id, due in times.items() if due <= now]
            for claim_id in ready:
                self._due.pop(claim_id, None)
            if not ready:
                if self._flag:
                    return True
                if until is not None and now >= until:
                    return False
                ends = [*times.values(), *([] if until is None else [until])]
                self._changed.wait(min(ends) - now if ends else None)
            for claim_id in ready:
                self._wake(claim_id)
