"""The task that is running."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import asyncio

LoopTask: TypeAlias = "asyncio.Task[Any]"


def running_task() -> LoopTask | None:
    """The task that is running in this thread, if one is."""
    # Where nobody has asked for asyncio nobody runs a loop, and to read it takes a fifth of a program's start.
    # Another thread may be reading it just now.
    loop_here = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    loop = None if loop_here is None else loop_here()
    return None if loop is None else sys.modules["asyncio"].current_task(loop)
