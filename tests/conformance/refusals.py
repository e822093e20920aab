"""Whether what cannot be is refused: many values in one test, because a client for each takes longer than the value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from holdfast import InvalidRequest


def refused(call: Callable[[], Any]) -> bool:
    """Whether a call is an invalid request. Whatever else goes wrong goes on."""
    try:
        call()
    except InvalidRequest:
        return True
    return False


async def declined(work: Awaitable[Any]) -> bool:
    """The same of what is awaited."""
    try:
        await work
    except InvalidRequest:
        return True
    return False
