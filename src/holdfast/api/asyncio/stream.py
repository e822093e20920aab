"""What keeps coming, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

from holdfast.locks.watching import End, Ended, Source
from holdfast.runtime.asyncio import SharedCall

T = TypeVar("T")


class Stream(Generic[T]):
    """What keeps coming, as an async iterator, from the start of its `async with` or else from the first `anext`.

    Close it, or leave its `async with`, to stop being told: from any task, also while another one waits in `anext`.
    An `anext` that is cancelled, as by a time limit, loses nothing: the next one goes on.
    """

    def __init__(self, source: Callable[[End], AsyncIterator[T]], *, says_begun: bool = False) -> None:
        self._end = End()
        self._source = Source(source(self._end), self._end, says_begun=says_begun)
        self._asking = SharedCall(self._source.ask)
        """Asks the source, which is for one at a time."""

    def __del__(self) -> None:
        """End a call that a cancelled `anext` has left: no other `anext` will come for its result."""
        if hasattr(self, "_end"):
            self._end.say()

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
        elements = self._source.elements
        if not elements.ag_running:  # type: ignore[attr-defined]
            await elements.aclose()  # type: ignore[attr-defined]

    async def __aenter__(self) -> Stream[T]:
        await self._source.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
