"""One member's time in a group: from a join to a leave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from holdfast.locks.client import Client
from holdfast.locks.errand import Errand
from holdfast.locks.hold import Hold
from holdfast.locks.keeper import Keeper
from holdfast.runtime.io import Signal


class Stay:
    """What belongs to one join, and to no other: its hold, its errand, and those who wait for it to be counted in.

    Whoever finds after a wait that another stay has begun gives back what it got for this one.
    Its hold is written under the front's lock, and who waits for it is kept under that too.
    """

    __slots__ = ("_waiting", "entering", "errand", "failed", "hold")

    def __init__(self, group: str, every: float, look: Callable[[Stay, Keeper], Awaitable[None]]) -> None:
        self.errand = Errand(f"the look at partition {group!r}", every, partial(look, self))
        self.hold: Hold | None = None
        self.entering = True
        """Whether the join that began it is still under way."""
        self.failed = False
        """Whether that join raised: whoever waited for it has to join by itself."""
        self._waiting: list[Signal] = []

    def stands(self, client: Client) -> bool:
        """Whether it makes us a member now: its hold is good, and is of the client's own session."""
        hold = self.hold
        return hold is not None and hold.valid and hold.session is client.session

    def wait_for_it(self, signal: Signal) -> None:
        """Set this when the join that began it is over."""
        self._waiting.append(signal)

    def entered(self, failed: bool) -> None:
        """The join is over: those who waited for it go on."""
        self.entering, self.failed = False, failed
        for signal in self._waiting:
            signal.set()
