"""Waiting for what has to happen."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 40.0


def eventually(condition: Callable[[], object], what: str = "it") -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, f"{what} did not happen within {PATIENCE:g} s"
        time.sleep(0.01)
