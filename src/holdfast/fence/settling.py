"""One code for blocking and asyncio drivers."""

from __future__ import annotations

import inspect
from typing import Any


async def settled(value: Any) -> Any:
    """The value itself, or what it gives when awaited."""
    return await value if inspect.isawaitable(value) else value
