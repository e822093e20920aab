"""A small append-only log, awaited."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from holdfast.api.asyncio.stream import Stream
from holdfast.locks.log import LogFront


class Log:
    """Events in order, appended by whoever knows how long the log is; numbered from 0."""

    def __init__(self, front: LogFront) -> None:
        self._front = front

    async def append(self, events: Sequence[Any], expected: int | None = None) -> int:
        """Append all of them if the log is `expected` long (None: however long); the new length. Conflict otherwise."""
        return await self._front.append(events, expected)

    async def read(self, from_: int = 0) -> list[Any]:
        """The events from number `from_` on."""
        return await self._front.read(from_)

    async def length(self) -> int:
        """How many events were ever appended."""
        return await self._front.length()

    async def trim(self, before: int) -> int:
        """Forget the events before number `before`; the first number that is left."""
        return await self._front.trim(before)

    def follow(self, from_: int = 0) -> Stream[tuple[int, Any]]:
        """Each event with its number, from `from_` on, as they are appended."""
        return Stream(partial(self._front.follow, from_))
