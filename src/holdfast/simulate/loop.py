"""An event loop in virtual time, for code that was written for asyncio: the lock server.

It has what the server asks of a loop, and no more: callbacks, timers, futures and tasks. What is ready runs in the
order in which it became ready, as in a real loop; between its turns the world decides who goes on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import Any, TypeVar, cast

from holdfast.runtime import clock
from holdfast.runtime.simulated import Machine, World

T = TypeVar("T")
TICK = 1e-6
"""The shortest time that a timer takes."""


class SimulatedLoop:
    """The loop of one process on one machine. It stops and dies with the machine, and has the machine's clock."""

    def __init__(self, world: World, machine: Machine) -> None:
        self.world, self.machine = world, machine
        self.over = False
        """Whether its process has ended: nothing of it runs any more."""
        self.failures: list[BaseException] = []
        """What came out of callbacks and tasks, and nobody expected."""
        self._ready: deque[asyncio.Handle] = deque()
        self._turning = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The same as others know it."""
        return cast(asyncio.AbstractEventLoop, self)

    def end(self) -> None:
        """Its process is gone."""
        self.over = True
        self._ready.clear()

    # What asyncio asks of a loop

    def time(self) -> float:
        return self.machine.now()

    def get_debug(self) -> bool:
        return False

    def is_closed(self) -> bool:
        return self.over

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self.loop, context)
        self._add(handle)
        return handle

    call_soon_threadsafe = call_soon
    """There are no threads."""

    def run_in_executor(self, executor: None, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """What others would do in a thread, in a turn of its own."""
        done = self.create_future()
        self.call_soon(self._execute, done, function, *args)
        return done

    @staticmethod
    def _execute(done: asyncio.Future[T], function: Callable[..., T], *args: Any) -> None:
        if not done.cancelled():
            try:
                done.set_result(function(*args))
            except Exception as error:  # noqa: BLE001 whoever awaits it is told
                done.set_exception(error)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        # Time stands still while something runs: a delay that is lost in rounding would be over again and again.
        delay = max(delay, TICK) if delay > 0 else delay
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self.loop, context)
        self.world.at(max(self.world.time, self.machine.moment(when)), partial(self._add, handle), self.machine)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self.loop)

    def create_task(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        return asyncio.Task(work, loop=self.loop, name=name)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.over:
            self.failures.append(context.get("exception") or AssertionError(context["message"]))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is not run when its time comes."""

    # Its turns

    def _add(self, handle: asyncio.Handle) -> None:
        if self.over or handle.cancelled():
            return
        self._ready.append(handle)
        if not self._turning:
            self._turning = True
            self.world.at(self.world.time, self._turn, self.machine)

    def _turn(self) -> None:
        """Run what is ready now; what becomes ready by that is for the next turn."""
        with Running(self):
            for _ in range(len(self._ready)):
                if self.over:
                    return
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        self._turning = False
        if self._ready:
            self._turning = True
            self.world.at(self.world.time, self._turn, self.machine)


class Running:
    """While it is entered, code finds this loop as the running one, and its machine's clock as the only clock."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop, self._before = loop, asyncio._get_running_loop()
        self._clocks = clock.now, clock.time_of_day

    def __enter__(self) -> None:
        asyncio._set_running_loop(self._loop.loop)
        clock.now = clock.time_of_day = self._loop.time

    def __exit__(self, *error: object) -> None:
        asyncio._set_running_loop(self._before)
        clock.now, clock.time_of_day = self._clocks
