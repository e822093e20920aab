"""Waiting for what has to happen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


def eventually(condition: Callable[[], object], within: float = 15.0) -> None:
    """Wait until a condition holds; AssertionError if it does not in time."""
    until = time.monotonic() + within
    while not condition():
        assert time.monotonic() < until, f"not within {within:g} s"
        time.sleep(0.005)


async def soon(condition: Callable[[], Awaitable[bool]], within: float = 60.0) -> None:
    """The same for tasks."""
    until = time.monotonic() + within
    while not await condition():
        assert time.monotonic() < until, f"not within {within:g} s"
        await asyncio.sleep(0.01)
