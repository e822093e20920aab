"""Where the keeper waits: rung by whoever wants it to look up, and when a waiter is due to try again."""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.runtime import clock


class Bell:
    """A flag that any thread sets, and the times at which those who wait for a lock try again.

    Nobody tells a Redlock client that a lock is free, so waiters poll; the keeper's one thread
    wakes each of them when its time has come.
    """

    def __init__(self, wake: Callable[[str], None]) -> None:
        self._wake = wake
        self._changed = threading.Condition()
        self._flag = False
        self._due: dict[str, float] = {}

    def set(self) -> None:
        with self._changed:
            self._flag = True
            self._changed.notify_all()

    def clear(self) -> None:
        self._flag = False

    def is_set(self) -> bool:
        return self._flag

    def try_at(self, claim_id: str, due: float) -> None:
        """Wake the waiter with this claim then."""
        with self._changed:
            self._due[claim_id] = due
            self._changed.notify_all()

    def forget(self, claim_id: str) -> None:
        """It waits no longer."""
        self._due.pop(claim_id, None)

    def wait(self, timeout: float | None = None) -> bool:
        """Until the bell is rung or the time is over."""
        until = None if timeout is None else clock.now() + timeout
        while True:
            with self._changed:
                now = clock.now()
                ready = [claim_id for claim_id, due in self._due.items() if due <= now]
                for claim_id in ready:
                    del self._due[claim_id]
                if not ready:
                    if self._flag:
                        return True
                    ends = [*self._due.values(), *([] if until is None else [until])]
                    left = min(ends) - now if ends else None
                    if until is not None and now >= until:
                        return False
                    self._changed.wait(left)
            for claim_id in ready:
                self._wake(claim_id)
