"""The holder's own clock: one that goes on counting while the machine sleeps."""

from __future__ import annotations

import time

# macOS has no CLOCK_BOOTTIME; its monotonic clock counts sleep.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_read = time.clock_gettime


def now() -> float:
    """Seconds on a clock that never goes back and counts sleep."""
    return _read(_CLOCK)
