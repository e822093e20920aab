"""A clock that goes on by itself and jumps when told: a ttl of ten seconds is over in no time.

A jump is made in steps. Every client whose heartbeat falls due on the way sends it, so that only
those lose their locks that would have lost them in as much real time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from holdfast.runtime import clock

PATIENCE = 10.0
"""How long a jump waits for keepers to do what is due, in real seconds."""


class ClockSignal:
    """A flag that a thread waits for by a clock that jumps."""

    def __init__(self, made_by: Clock) -> None:
        self._clock, self._flag = made_by, False
        self.paused = False
        """Whether whoever waits for it stays where it is."""

    def set(self) -> None:
        with self._clock.changed:
            self._flag = True
            self._clock.changed.notify_all()

    def clear(self) -> None:
        self._flag = False

    def is_set(self) -> bool:
        return self._flag

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is set, or so many seconds by that clock have passed."""
        return self._clock.wait(self, None if timeout is None else self._clock.now() + timeout)


class Clock:
    """Real time, and jumps."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self.changed = threading.Condition(threading.RLock())
        self._resting: dict[ClockSignal, float | None] = {}
        """Who waits, and until when."""
        self._keepers: dict[ClockSignal, threading.Thread] = {}
        self.on_jump: dict[object, Callable[[], Any]] = {}

    def now(self) -> float:
        """Seconds, as clients and the lock table see them."""
        return clock.now() + self._ahead

    def wall(self) -> float:
        """Seconds since the epoch."""
        return time.time() + self._ahead

    def wait(self, signal: ClockSignal, until: float | None) -> bool:
        """Wait for a signal until a time; whether it was set. A paused one stays."""
        with self.changed:
            self._resting[signal] = until
            self.changed.notify_all()
            try:
                while signal.paused or not signal.is_set():
                    left = None if until is None else until - self.now()
                    if left is not None and left <= 0 and not signal.paused:
                        break
                    self.changed.wait(None if signal.paused else left)
            finally:
                del self._resting[signal]
            return signal.is_set()

    def keeps(self, bell: ClockSignal) -> None:
        """The thread that runs now is a keeper, and this is where it waits."""
        with self.changed:
            self._keepers[bell] = threading.current_thread()

    def advance(self, seconds: float) -> None:
        """Jump ahead, in steps, and return when every keeper has done what was due on the way."""
        target = self.now() + seconds
        while True:
            with self.changed:
                self._settle()
                now = self.now()
                due = [until for bell, until in self._resting.items() if until is not None and not bell.paused]
                step = min([target, *(until for until in due if until > now)])
                self._ahead += max(0.0, step - now)
                self.changed.notify_all()
            for told in list(self.on_jump.values()):
                told()
            if step >= target:
                break
        with self.changed:
            self._settle()

    def _settle(self) -> None:
        """Wait until every keeper rests and nothing is due for it. What others hold back is not waited for for ever."""
        self.changed.wait_for(self._settled, PATIENCE)

    def _settled(self) -> bool:
        for bell, thread in self._keepers.copy().items():
            if not thread.is_alive():
                del self._keepers[bell]
            elif bell.paused:
                continue
            elif bell not in self._resting or bell.is_set():
                return False
            else:
                until = self._resting[bell]
                if until is not None and until <= self.now():
                    return False
        return True

    def pause(self, bell: ClockSignal, paused: bool) -> None:
        """Let a keeper stay where it is, or go on."""
        with self.changed:
            bell.paused = paused
            self.changed.notify_all()
