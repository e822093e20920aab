"""The simulated driver: virtual time and an order that a seed decides.

Every call and every wait suspends, and the world chooses which task goes on next. The same
seed gives the same run, step for step.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, Protocol, TypeVar

from holdfast.runtime.io import Event, Signal

T = TypeVar("T")


class SimulatedPort(Protocol):
    """Where a simulated Io sends its requests: answered at once, delayed by the world."""

    def call(self, request: Any, until: float) -> Any: ...


class Cancelled(BaseException):
    """A simulated task was told to stop. Like asyncio's, it is not an Exception."""


class Pause:
    """What a task waits for: a moment, and perhaps a signal that comes before it."""

    __slots__ = ("signal", "until")

    def __init__(self, until: float | None, signal: SimulatedSignal | None = None) -> None:
        self.until, self.signal = until, signal


@coroutine
def suspend(pause: Pause) -> Generator[Pause, None, None]:
    """Give the turn to the world."""
    yield pause


class SimulatedSignal:
    """A flag that wakes a simulated task."""

    __slots__ = ("_flag", "_world", "task")

    def __init__(self, world: World) -> None:
        self._world, self._flag = world, False
        self.task: Task | None = None

    def set(self) -> None:
        self._flag = True
        if self.task is not None:
            self._world.wake(self.task)

    def clear(self) -> None:
        self._flag = False

    def is_set(self) -> bool:
        return self._flag


class Task:
    """A coroutine that the world drives."""

    def __init__(self, name: str, work: Coroutine[Pause, None, Any]) -> None:
        self.name, self.work = name, work
        self.turn = 0
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.cancelled = False
        self.pauses = 0
        """How often it has given its turn away."""


class World:
    """Virtual time, a seed, and the tasks that live in it."""

    def __init__(self, seed: int = 0, start: float = 1_000.0, most_delay: float = 0.01) -> None:
        self.random = random.Random(seed)
        self.time, self.most_delay = start, most_delay
        self._due: list[tuple[float, float, int, Task, int]] = []
        self._number = 0
        self.tasks: list[Task] = []
        self.current: Task | None = None

    def spawn(self, name: str, work: Coroutine[Pause, None, T]) -> Task:
        """Start a task; it runs when the world gets to it."""
        task = Task(name, work)
        self.tasks.append(task)
        self._schedule(task, self.time)
        return task

    def wake(self, task: Task) -> None:
        """Let a task go on now: whatever else it was due for is void."""
        if not task.done:
            self._schedule(task, self.time)

    def cancel(self, task: Task) -> None:
        """Throw `Cancelled` into a task at the point where it waits."""
        task.cancelled = True
        self.wake(task)

    def run(self, until: float = float("inf")) -> None:
        """Run all tasks until nothing is due or the time has come."""
        while self._due and self._due[0][0] <= until:
            at, _, _, task, turn = heapq.heappop(self._due)
            if task.done or turn != task.turn:
                continue
            self.time = max(self.time, at)
            self._step(task)
        if until != float("inf"):
            self.time = max(self.time, until)

    def run_until_done(self, task: Task) -> Any:
        """Run the world until one task is finished, and return its result or raise its error."""
        while not task.done:
            if not self._due:
                raise AssertionError(f"task {task.name!r} waits for something that never comes")
            self.run(self._due[0][0])
        if task.error is not None:
            raise task.error
        return task.result

    def io(self, port: SimulatedPort) -> SimulatedIo:
        """The world as one recipe sees it."""
        return SimulatedIo(self, port)

    def _schedule(self, task: Task, at: float) -> None:
        task.turn += 1
        self._number += 1
        # Ties are broken by the seed, so that every order of what happens together gets its turn.
        heapq.heappush(self._due, (at, self.random.random(), self._number, task, task.turn))

    def _step(self, task: Task) -> None:
        self.current = task
        try:
            if task.cancelled:
                task.cancelled = False
                pause = task.work.throw(Cancelled())
            else:
                pause = task.work.send(None)
        except StopIteration as stop:
            task.done, task.result = True, stop.value
        except BaseException as error:  # noqa: BLE001 - kept for whoever looks at the task
            task.done, task.error = True, error
        else:
            task.pauses += 1
            if pause.signal is not None:
                pause.signal.task = task
            if pause.until is not None:
                self._schedule(task, pause.until)
            else:
                task.turn += 1
        finally:
            self.current = None


class SimulatedIo:
    """Awaits in virtual time."""

    def __init__(self, world: World, port: SimulatedPort) -> None:
        self.world, self.port = world, port

    def now(self) -> float:
        return self.world.time

    def uniform(self, low: float, high: float) -> float:
        return self.world.random.uniform(low, high)

    async def call(self, request: Any, until: float) -> Any:
        """There and back: the request is handled half-way, so a cancellation can fall on either side of it."""
        await suspend(Pause(self.world.time + self.uniform(0.0, self.world.most_delay)))
        reply = self.port.call(request, until)
        await suspend(Pause(self.world.time + self.uniform(0.0, self.world.most_delay)))
        return reply

    async def wait(self, signal: Signal, until: float | None) -> bool:
        assert isinstance(signal, SimulatedSignal)
        if not signal.is_set():
            try:
                await suspend(Pause(until, signal))
            finally:
                signal.task = None
        return signal.is_set()

    async def shielded(self, work: Coroutine[Any, Any, T]) -> T:
        task = self.world.spawn("shielded", work)
        finished = SimulatedSignal(self.world)
        cancelled: Cancelled | None = None
        while not task.done:
            try:
                await self.wait(finished, self.world.time + self.world.most_delay)
            except Cancelled as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        if task.error is not None:
            raise task.error
        return task.result  # type: ignore[no-any-return]

    def signal(self) -> SimulatedSignal:
        return SimulatedSignal(self.world)

    def event(self) -> tuple[Event, Callable[[], None]]:
        signal = SimulatedSignal(self.world)
        return signal, signal.set

    def call_back(self, function: Callable[..., object], *args: object) -> None:
        function(*args)
