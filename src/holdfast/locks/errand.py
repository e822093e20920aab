"""Something that the keeper does now and then for a front."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.locks.keeper import Keeper


@dataclass(eq=False)
class Errand:
    """What to do, and how often. `work` runs in the keeper's thread, with the keeper's verbs.

    A HoldfastError that it raises is noted, and it is done again when it is due.
    """

    what: str
    every: float
    work: Callable[[Keeper], Awaitable[None]]
    due: float = 0.0

    def __str__(self) -> str:
        return self.what
