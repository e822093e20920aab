"""The server's clock, by which kept values end.

Only a write tells what it shows: the answer has the time of the write. This machine's time of
day has no say, it may be set wrong, or be set anew at any moment.
"""

from __future__ import annotations

import time
from typing import Any

from holdfast.runtime import clock

FRESH = 60.0
"""For how many seconds a look at it is good enough to call a value ended: clocks drift, and leaders change."""


class ServerClock:
    """What one link knows of it. All moments that are asked for are on the holder's own clock."""

    def __init__(self) -> None:
        self._ahead: float | None = None
        self._seen_at = 0.0

    def note(self, stat: Any) -> None:
        """A write of this link was answered just now: the server's clock shows at least the time of that write."""
        now = clock.now()
        self._ahead, self._seen_at = stat.mtime / 1000 - now, now

    def at(self, moment: float) -> float | None:
        """What it showed then at least, in seconds; None if that is not known."""
        return None if self._ahead is None else moment + self._ahead

    @property
    def fresh(self) -> bool:
        """Whether it was seen lately."""
        return self._ahead is not None and clock.now() - self._seen_at < FRESH

    def shown(self) -> float:
        """The time now, for people to read: our own time of day as long as the server's is not known."""
        now = self.at(clock.now())
        return time.time() if now is None else now
