"""What keeps coming, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

from holdfast.locks.watching import End, Ended

T = TypeVar("T")


class Stream(Generic[T]):
    """What keeps coming, as an async iterator, from the start of its `async with` or else from the first `anext`.

    Close it, or leave its `async with`, to stop being told: from any task, also while another one waits in `anext`.
    """

    def __init__(self, source: Callable[[End], AsyncIterator[T]], *, says_begun: bool = False) -> None:
        self._end = End()
        self._source, self._to_begin = source(self._end), says_begun
        self._inside = 0
        """How many tasks wait for the source, which is for one at a time."""

    async def _begin(self) -> None:
        if self._to_begin:
            self._to_begin = False
            await self._source.__anext__()

    def __aiter__(self) -> Stream[T]:
        return self

    async def __anext__(self) -> T:
        self._inside += 1
        try:
            self._end.check()
            await self._begin()
            return await self._source.__anext__()
        except Ended:
            raise StopAsyncIteration from None
        finally:
            self._inside -= 1
            if self._end.said:
                await self.aclose()

    async def aclose(self) -> None:
        """Stop being told."""
        self._end.say()
        # Whoever is inside closes the source when it comes out.
        if not self._inside:
            self._inside += 1
            try:
                await self._source.aclose()  # type: ignore[attr-defined]
            finally:
                self._inside -= 1

    async def __aenter__(self) -> Stream[T]:
        await self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
