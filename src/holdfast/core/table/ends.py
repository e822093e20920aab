"""Who dies when: a moment for each key, the earliest at hand however many there are."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
NEVER = float("inf")
SMALL = 64
"""A heap no longer than this is not worth clearing up."""


class Ends(Generic[K]):
    """Moments that move. A moment that is put off costs nothing until the former one has come."""

    __slots__ = ("_heap", "_queued", "moments")

    def __init__(self) -> None:
        self.moments: dict[K, float] = {}
        self._heap: list[tuple[float, Any]] = []
        """Each key at a moment that is not after its own; and what is out of date, until it comes up."""
        self._queued: dict[K, float] = {}
        """Where in the heap each key is to be believed."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ends) and self.moments == other.moments

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self.moments)

    def put(self, key: K, moment: float) -> None:
        """It dies then, and no longer when it would have before."""
        self.moments[key] = moment
        queued = self._queued.get(key)
        if queued is None or moment < queued:
            self._queued[key] = moment
            heappush(self._heap, (moment, key))

    def drop(self, key: K) -> None:
        """It does not die, or is dead already."""
        if self.moments.pop(key, None) is not None and len(self._heap) > SMALL + 2 * len(self.moments):
            self._heap = [(moment, key) for key, moment in self.moments.items()]
            heapify(self._heap)
            self._queued = dict(self.moments)

    def first(self) -> float:
        """When the first one dies."""
        heap, moments, queued = self._heap, self.moments, self._queued
        while heap:
            moment, key = heap[0]
            if queued.get(key) != moment:
                heappop(heap)
                continue
            now = moments.get(key)
            if now == moment:
                return moment
            if now is None:
                heappop(heap)
                del queued[key]
            else:
                heapreplace(heap, (now, key))
                queued[key] = now
        return NEVER

    def dead(self, now: float, most: int | None = None) -> list[K]:
        """Those whose moment has come, the earliest first, at most so many. They stay."""
        found: list[tuple[float, K]] = []
        while self.first() <= now and (most is None or len(found) < most):
            found.append(heappop(self._heap))
            del self._queued[found[-1][1]]
        for moment, key in found:
            self._queued[key] = moment
            heappush(self._heap, (moment, key))
        return [key for _, key in found]
