"""A versioned value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.api.blocking.stream import Stream
from holdfast.locks.cell import RETRIES, CellFront
from holdfast.runtime.blocking import run


class Cell:
    """A versioned value, changed by compare-and-swap."""

    def __init__(self, front: CellFront) -> None:
        self._front = front

    def get(self) -> tuple[Any, int]:
        """The value and its version; `(None, 0)` if there is none."""
        return run(self._front.get())

    def set(self, value: Any, version: int | None = None) -> int:
        """Write if the version is still this one (0: no value yet; None: whatever it is). Returns the new version."""
        return run(self._front.set(value, version))

    def update(self, change: Callable[[Any], Any], retries: int = RETRIES) -> tuple[Any, int]:
        """Replace the value by `change(value)`, again if somebody else was faster."""
        return run(self._front.update(change, retries))

    def delete(self, version: int | None = None) -> None:
        """Delete if the version is still this one."""
        run(self._front.delete(version))

    def watch(self) -> Stream[tuple[Any, int]]:
        """The value and its version, now and after every change."""
        return Stream(self._front.watch)
