"""The simulated driver: virtual time and an order that a seed decides.

Every call and every wait suspends, and the world chooses which task goes on next. The same
seed gives the same run, step for step.

Tasks live on machines, if they are given one: a machine can stop for a while, which none of its
tasks notices but by the clock; it can die; and its clock can run fast or slow.
"""

from __future__ import annotations

import contextvars
import heapq
import random
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, Protocol, TypeVar

from holdfast.runtime.io import Event, Signal
from holdfast.runtime.task import LoopTask, running_task

T = TypeVar("T")


class SimulatedPort(Protocol):
    """Where a simulated Io sends its requests: answered at once, delayed by the world."""

    def call(self, request: Any, until: float) -> Any: ...


class Cancelled(BaseException):
    """A simulated task was told to stop. Like asyncio's, it is not an Exception."""


class Ended(BaseException):
    """The world has ended, and every task in it."""


class Pause:
    """What a task waits for: a moment, and perhaps a signal that comes before it."""

    __slots__ = ("signal", "until")

    def __init__(self, until: float | None, signal: SimulatedSignal | None = None) -> None:
        self.until, self.signal = until, signal


@coroutine
def suspend(pause: Pause) -> Generator[Pause, None, None]:
    """Give the turn to the world."""
    yield pause


@coroutine
def finish(work: Coroutine[Any, Any, T]) -> Generator[Pause, None, T]:
    """Drive `work` to its end; a cancellation that comes meanwhile is raised after that."""
    cancelled: Cancelled | None = None
    try:
        pause = work.send(None)
        while True:
            try:
                yield pause
            except Cancelled as error:
                cancelled = error
                # What it waits for may have come in the same moment, and does not come again.
                if pause.signal is None or not pause.signal.is_set():
                    continue
            except Ended as error:
                pause = work.throw(error)
                continue
            pause = work.send(None)
    except StopIteration as stop:
        if cancelled is not None:
            raise cancelled from None
        return stop.value  # type: ignore[no-any-return]
    except Exception:
        if cancelled is not None:
            raise cancelled from None
        raise


class Machine:
    """Where tasks run: they stop together, die together, and share a clock."""

    def __init__(self, world: World, name: str, rate: float = 1.0) -> None:
        self.world, self.name = world, name
        self.rate, self._started = rate, world.time
        """How many of its seconds pass in one of the world's."""
        self.asleep = self.dead = False
        self._backlog: list[tuple[Task | Callable[[], None], int]] = []

    def now(self) -> float:
        """The time on its own clock, which counts while it is stopped."""
        return self.world.time if self.rate == 1.0 else self.shown(self.world.time)

    def shown(self, at: float) -> float:
        """What its clock shows at a moment of the world."""
        return self._started + (at - self._started) * self.rate

    def moment(self, shown: float) -> float:
        """The moment of the world at which its clock shows this, or just after it: rounding must not wake it early."""
        return shown if self.rate == 1.0 else self._started + (shown - self._started) / self.rate + 1e-9

    def stop(self) -> None:
        """Nothing runs here until it goes on."""
        self.asleep = True

    def go_on(self) -> None:
        """What was due meanwhile is due now."""
        self.asleep = False
        backlog, self._backlog = self._backlog, []
        for due, turn in backlog:
            if not isinstance(due, Task):
                self.world.at(self.world.time, due, self)
            elif turn == due.turn:
                self.world.wake(due)

    def die(self) -> None:
        """Nothing runs here any more, unless it is started again."""
        self.dead = True
        self._backlog = []

    def start(self) -> None:
        """Run again after a death; what was under way before it is gone."""
        self.dead = self.asleep = False

    def put_off(self, due: Task | Callable[[], None], turn: int) -> None:
        """Keep what came while it is stopped; it is lost if the machine is dead."""
        if not self.dead:
            self._backlog.append((due, turn))


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

    __slots__ = ("cancelled", "context", "done", "error", "machine", "name", "pauses", "result", "turn", "work")

    def __init__(self, name: str, work: Coroutine[Pause, None, Any], machine: Machine | None = None) -> None:
        self.name, self.work, self.machine = name, work, machine
        # The owner is a context variable: each task is somebody else.
        self.context = contextvars.copy_context()
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
        self._due: list[tuple[float, float, int, Task | Callable[[], None], int, Machine | None]] = []
        self._number = 0
        self.tasks: dict[Task, None] = {}
        """Those that are not done."""
        self.current: Task | None = None
        self.over = False

    def spawn(self, name: str, work: Coroutine[Pause, None, T], machine: Machine | None = None) -> Task:
        """Start a task; it runs when the world gets to it."""
        task = Task(name, work, machine)
        if self.over:
            work.close()
            task.done = True
            return task
        self.tasks[task] = None
        self._schedule(task, self.time)
        return task

    def at(self, moment: float, do: Callable[[], None], machine: Machine | None = None) -> None:
        """Call a function at a moment; if it is to happen on a machine that is stopped then, once that goes on."""
        self._number += 1
        heapq.heappush(self._due, (moment, self.random.random(), self._number, do, 0, machine))

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
        due = self._due
        while due and due[0][0] <= until:
            at, _, _, what, turn, machine = heapq.heappop(due)
            is_task = type(what) is Task
            if is_task and (what.done or turn != what.turn):  # type: ignore[union-attr]
                continue
            if at > self.time:
                self.time = at
            if machine is not None and (machine.asleep or machine.dead):
                machine.put_off(what, turn)
            elif is_task:
                self._step(what)  # type: ignore[arg-type]
            else:
                what()  # type: ignore[operator]
        if until != float("inf"):
            self.time = max(self.time, until)

    def end(self) -> None:
        """Throw every task that is left out of the world, so that none is left half-way. Nothing runs after this."""
        self.over = True
        for task in list(self.tasks):
            for _ in range(_MOST_THROWS):
                try:
                    task.context.run(task.work.throw, Ended())
                except BaseException:  # noqa: BLE001 - whatever it says, nobody is left to hear it
                    break
            task.done = True
        self.tasks.clear()
        self._due.clear()

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
        heapq.heappush(self._due, (at, self.random.random(), self._number, task, task.turn, task.machine))

    def _step(self, task: Task) -> None:
        self.current = task
        try:
            if task.cancelled:
                task.cancelled = False
                pause = task.context.run(task.work.throw, Cancelled())
            else:
                pause = task.context.run(task.work.send, None)
        except StopIteration as stop:
            task.done, task.result = True, stop.value
            del self.tasks[task]
        except BaseException as error:  # noqa: BLE001 - kept for whoever looks at the task
            task.done, task.error = True, error
            del self.tasks[task]
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


_MOST_THROWS = 100
"""How often a task is told that the world has ended before it is left as it is."""


class SimulatedIo:
    """Awaits in virtual time."""

    awaits = False

    def __init__(self, world: World, port: SimulatedPort) -> None:
        self.world, self.port = world, port

    def now(self) -> float:
        return self.world.time

    def uniform(self, low: float, high: float) -> float:
        return self.world.random.uniform(low, high)

    def check_caller(self) -> None:
        """There is one world, and every task in it may call."""

    def task(self) -> LoopTask | None:
        return running_task()

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

    def running(self) -> Task | None:
        return self.world.current

    def has_ended(self, call: object) -> bool:
        return isinstance(call, Task) and call.done

    async def shielded(self, work: Coroutine[Any, Any, T]) -> T:
        return await finish(work)

    async def apart(self, function: Callable[[], None]) -> None:
        function()

    def signal(self) -> SimulatedSignal:
        return SimulatedSignal(self.world)

    def event(self) -> tuple[Event, Callable[[], None]]:
        signal = SimulatedSignal(self.world)
        return signal, signal.set

    def call_back(self, function: Callable[..., object], *args: object) -> None:
        function(*args)
