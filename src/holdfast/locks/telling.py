"""Telling a user's callback one thing after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

from holdfast.runtime.calls import new_lock
from holdfast.runtime.io import Io

Call = Callable[[], object]


def with_end(call: Call, end: Callable[[], None]) -> Call:
    """The call, and `end` when it has returned or raised; what it returns to be awaited is awaited before."""

    def run() -> object:
        try:
            result = call()
        except BaseException:
            end()
            raise
        if isinstance(result, Awaitable):
            return awaited(result)
        end()
        return None

    async def awaited(result: Awaitable[object]) -> None:
        try:
            await result
        finally:
            end()

    return run


class Telling:
    """Calls that are made in the order in which they were asked for, each when the one before it has returned.

    What a call returns to be awaited is awaited first. One that raises does not stop those after it.
    """

    def __init__(self, io: Io) -> None:
        self._io = io
        self._calls: deque[Call] = deque()
        self._busy = False
        self._lock = new_lock()

    def tell(self, call: Call) -> None:
        """Make this call when all before it have returned; from any thread, and never in it."""
        self._calls.append(call)
        self._begin()

    def _begin(self) -> None:
        """Begin the next call, if there is one and none is under way."""
        with self._lock:
            # Without a call: a signal handler that tells something does not come in between.
            if self._busy or not self._calls:
                return
            self._busy = True
        self._io.call_back(self._make)

    def _make(self) -> object:
        return with_end(self._calls.popleft(), self._returned)()

    def _returned(self) -> None:
        self._busy = False
        self._begin()
