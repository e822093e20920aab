"""Assertions about what a resource does with the write of a holder that has lost its lock."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.errors import LockLost, NotHeld, StaleToken

UNFENCED = (
    "the write went through although a later holder has the lock: the resource does not check the token. "
    "Pass the grant to a fence (holdfast.fence), or send grant.token and let the resource refuse an older one"
)
ONLY_LOCAL = (
    "the write was stopped by the holder's own look at its grant, not by the resource: one that was already on its "
    "way would have gone through. Lose the lock after that look (take_over does), or let the resource check the token"
)


def assert_fenced(write: Callable[[], Any], *refusals: type[BaseException]) -> Any:
    """Call `write` and make sure that the resource refuses it; returns what it raised.

    A refusal is `StaleToken`, or one of `refusals` if your store says it otherwise. If `write` is a
    coroutine function, await the result of this.
    """
    expected = refusals or (StaleToken,)
    try:
        result = write()
    except Exception as error:  # noqa: BLE001 - judged at once
        return _judged(error, expected)
    if inspect.isawaitable(result):
        return _awaited(result, expected)
    raise AssertionError(UNFENCED)


async def _awaited(result: Awaitable[object], expected: tuple[type[BaseException], ...]) -> BaseException:
    try:
        await result
    except Exception as error:  # noqa: BLE001 - judged at once
        return _judged(error, expected)
    raise AssertionError(UNFENCED)


def _judged(error: Exception, expected: tuple[type[BaseException], ...]) -> BaseException:
    if isinstance(error, expected):
        return error
    if isinstance(error, LockLost | NotHeld):
        raise AssertionError(ONLY_LOCAL) from error
    raise error
