"""What keeps coming, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Stream(Generic[T]):
    """What keeps coming, as an async iterator, from the start of its `async with` or else from the first `anext`.

    Close it, or leave its `async with`, to stop being told.
    """

    def __init__(self, source: AsyncIterator[T], *, says_begun: bool = False) -> None:
        self._source, self._to_begin = source, says_begun

    async def _begin(self) -> None:
        if self._to_begin:
            self._to_begin = False
            await self._source.__anext__()

    def __aiter__(self) -> Stream[T]:
        return self

    async def __anext__(self) -> T:
        await self._begin()
        return await self._source.__anext__()

    async def aclose(self) -> None:
        """Stop being told."""
        await self._source.aclose()  # type: ignore[attr-defined]

    async def __aenter__(self) -> Stream[T]:
        await self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
