"""What keeps coming."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from holdfast.runtime.blocking import run

T = TypeVar("T")


class Stream(Generic[T]):
    """What keeps coming, as an iterator, from the start of its `with` or else from the first `next`.

    Close it, or leave its `with`, to stop being told.
    """

    def __init__(self, source: AsyncIterator[T], *, says_begun: bool = False) -> None:
        self._source, self._to_begin = source, says_begun

    def _begin(self) -> None:
        if self._to_begin:
            self._to_begin = False
            run(self._source.__anext__())  # type: ignore[arg-type]

    def __iter__(self) -> Stream[T]:
        return self

    def __next__(self) -> T:
        try:
            self._begin()
            return run(self._source.__anext__())  # type: ignore[arg-type]
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """Stop being told."""
        run(self._source.aclose())  # type: ignore[attr-defined]

    def __enter__(self) -> Stream[T]:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
