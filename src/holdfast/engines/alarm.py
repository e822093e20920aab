"""A flag that wakes a poll: what the bells of engines with a socket or a pipe are made of."""

from __future__ import annotations

import os
from contextlib import suppress

from holdfast.runtime.calls import new_lock


class Alarm:
    """Set from any thread, also from one that has not heard of the end yet."""

    def __init__(self) -> None:
        self.descriptor, self._write = os.pipe()
        """What a poll watches."""
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._write, False)
        self._open = [self.descriptor, self._write]
        self._rung = self._closed = False
        self._closing = new_lock()

    def set(self) -> None:
        """Wake whoever sleeps here."""
        self._rung = True
        self.interrupt()

    def interrupt(self) -> None:
        """End a poll without setting the flag."""
        with self._closing, suppress(BlockingIOError):
            # After the end the number may be another file's.
            if not self._closed:
                os.write(self._write, b"!")

    def clear(self) -> None:
        self._rung = False

    def is_set(self) -> bool:
        return self._rung

    def empty(self) -> None:
        """Take out what was rung so far."""
        with self._closing, suppress(BlockingIOError):
            while not self._closed and os.read(self.descriptor, 4096):
                continue

    def close(self) -> None:
        """Nobody sleeps here any more."""
        with self._closing:
            self._closed = True
            while self._open:
                # Taken out first: after an interrupt this is called again, and the number may be another file's.
                os.close(self._open.pop())
