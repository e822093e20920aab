"""What a test needs the engine to be able to do; where it cannot, the test asserts that it says so."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast import Unsupported
from tests.conformance.apis import Front

Test = Callable[..., Coroutine[Any, Any, None]]

BUILD: dict[str, Callable[[Front], object]] = {
    "shared": lambda locks: locks.rwlock("k").read(),
    "semaphore": lambda locks: locks.semaphore("k", limit=2),
    "subtree": lambda locks: locks.lock("k", subtree=True),
}

CELLS: dict[str, Callable[[Any], object]] = {
    "cell": lambda locks: locks.cell("k"),
    "latch": lambda locks: locks.latch("k", count=1),
    "barrier": lambda locks: locks.barrier("k", parties=2),
    "once": lambda locks: locks.once("k"),
    "partition": lambda locks: locks.partition("k"),
    "log": lambda locks: locks.log("k"),
}
"""What is kept in cells."""


def needs(mode: str) -> Callable[[Test], Test]:
    """Run a test where the engine has this mode; elsewhere, building such a lock has to be refused."""

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        async def checked(**fixtures: Any) -> None:
            locks: Front = fixtures["locks"]
            if mode in locks.guarantees.modes:
                await test(**fixtures)
            else:
                with pytest.raises(Unsupported):
                    BUILD[mode](locks)

        return checked

    return decorate
