"""What a recipe may await: data, and nothing else.

Recipes and fronts are coroutines over `Io`. They never name a thread, an event loop or a
socket, so the same code runs blocking, under asyncio, and in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from holdfast.runtime.task import LoopTask

T = TypeVar("T")


class Signal(Protocol):
    """Something to wait for; set from any thread, once or again."""

    def set(self) -> None: ...

    def clear(self) -> None: ...

    def is_set(self) -> bool: ...


class Event(Protocol):
    """What users see as `grant.lost`: a threading.Event or an asyncio.Event."""

    def is_set(self) -> bool: ...


class Io(Protocol):
    """The world as a recipe sees it."""

    awaits: bool
    """Whether a callback may return something to be awaited."""

    def now(self) -> float:
        """Seconds on the holder's own clock, which counts sleep."""

    async def call(self, request: Any, until: float) -> Any:
        """Send a request to the engine and return its reply; give up at `until`."""

    async def wait(self, signal: Signal, until: float | None) -> bool:
        """Wait until the signal is set or the time has come; whether it was set."""

    async def shielded(self, work: Coroutine[Any, Any, T]) -> T:
        """Finish `work` even if the caller is cancelled meanwhile, then let the cancellation go on.

        Work that limits itself in time does so without cancelling the task that it runs in.
        """

    async def apart(self, function: Callable[[], None]) -> None:
        """Call a function that no signal handler may interrupt half-way, and wait for its end."""

    def check_caller(self) -> None:
        """Raise HoldfastError if the caller runs in another event loop than the one that this Io belongs to.

        Every call and wait checks it. What changes something before its first call checks it itself.
        """

    def task(self) -> LoopTask | None:
        """The task that is running now, if a loop runs one."""

    def running(self) -> object:
        """The call that is running now, for `has_ended`."""

    def has_ended(self, call: object) -> bool:
        """Whether a call is over, however it ended. In any thread."""

    def signal(self) -> Signal:
        """A signal that `wait` of this Io understands."""

    def event(self) -> tuple[Event, Callable[[], None]]:
        """An event for users, and what sets it from any thread."""

    def call_back(self, function: Callable[..., object], *args: object) -> None:
        """Run a user's callback somewhere that is not the keeper and holds no lock of ours."""

    def uniform(self, low: float, high: float) -> float:
        """A random number, for jitter."""
