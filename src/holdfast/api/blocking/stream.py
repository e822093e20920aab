"""What keeps coming."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

from holdfast.locks.watching import End, Ended
from holdfast.runtime.blocking import run

T = TypeVar("T")


class Stream(Generic[T]):
    """What keeps coming, as an iterator, from the start of its `with` or else from the first `next`.

    Close it, or leave its `with`, to stop being told: from any thread, also while another one waits in `next`.
    """

    def __init__(self, source: Callable[[End], AsyncIterator[T]], *, says_begun: bool = False) -> None:
        self._end = End()
        self._source, self._to_begin = source(self._end), says_begun
        self._turn = threading.Lock()
        """Whose turn it is with the source, which is for one at a time."""

    def _ask(self) -> T:
        return run(self._next())

    async def _next(self) -> T:
        return await anext(self._source)

    def _begin(self) -> None:
        if self._to_begin:
            self._to_begin = False
            self._ask()

    def __iter__(self) -> Stream[T]:
        return self

    def __next__(self) -> T:
        try:
            # Before the turn as well: a close that was interrupted may have kept it.
            self._end.check()
            with self._turn:
                self._end.check()
                self._begin()
                return self._ask()
        except (StopAsyncIteration, Ended):
            raise StopIteration from None
        finally:
            if self._end.said:
                self.close()

    def close(self) -> None:
        """Stop being told."""
        self._end.say()
        # Whoever has its turn closes the source when it is over.
        if self._turn.acquire(blocking=False):
            try:
                run(self._close())
            finally:
                self._turn.release()

    async def _close(self) -> None:
        await self._source.aclose()  # type: ignore[attr-defined]

    def __enter__(self) -> Stream[T]:
        with self._turn:
            self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
