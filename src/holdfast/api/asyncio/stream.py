"""What keeps coming, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

from holdfast.locks.watching import End, Ended
from holdfast.runtime.asyncio import SharedCall

T = TypeVar("T")


class Stream(Generic[T]):
    """What keeps coming, as an async iterator, from the start of its `async with` or else from the first `anext`.

    Close it, or leave its `async with`, to stop being told: from any task, also while another one waits in `anext`.
    An `anext` that is cancelled, as by a time limit, loses nothing: the next one goes on.
    """

    def __init__(self, source: Callable[[End], AsyncIterator[T]], *, says_begun: bool = False) -> None:
        self._end = End()
        self._source, self._to_begin = source(self._end), says_begun
        self._asking = SharedCall(self._ask)
        """Asks the source, which is for one at a time."""

    async def _begin(self) -> None:
        if self._to_begin:
            await self._source.__anext__()
            self._to_begin = False

    async def _ask(self) -> T:
        self._end.check()
        await self._begin()
        try:
            return await self._source.__anext__()
        except StopAsyncIteration:
            raise Ended from None

    def __aiter__(self) -> Stream[T]:
        return self

    async def __anext__(self) -> T:
        try:
            return await self._asking.result()
        except Ended:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Stop being told."""
        self._end.say()
        await self._asking.settle()
        if not self._source.ag_running:  # type: ignore[attr-defined]
            await self._source.aclose()  # type: ignore[attr-defined]

    async def __aenter__(self) -> Stream[T]:
        await self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
