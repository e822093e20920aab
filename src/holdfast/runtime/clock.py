"""The holder's own clock: one that goes on counting while the machine sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

# macOS has no CLOCK_BOOTTIME; its monotonic clock counts sleep.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

now: Callable[[], float] = partial(time.clock_gettime, _CLOCK)
"""Seconds on a clock that never goes back and counts sleep; without a frame of Python's, for it is asked very often."""


def time_of_day() -> float:
    """Seconds since the epoch: for what people read, and for numbers that have to be ahead of earlier ones."""
    return time.time()
