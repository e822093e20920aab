"""The task that is running."""

from __future__ import annotations

import asyncio
from typing import Any

LoopTask = asyncio.Task[Any]


def running_task() -> LoopTask | None:
    """The task that is running in this thread, if one is."""
    loop = asyncio._get_running_loop()
    return None if loop is None else asyncio.current_task(loop)
