"""The blocking driver: nothing ever suspends, so one `send` runs the whole call."""

from __future__ import annotations

import _thread
import random
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol, TypeVar, cast

from holdfast.errors import EngineFailure, HoldfastError
from holdfast.runtime import clock
from holdfast.runtime.calls import begin, free_left_locks, has_ended, running_call
from holdfast.runtime.io import Event, Signal
from holdfast.runtime.task import running_task

T = TypeVar("T")


class BlockingPort(Protocol):
    """Where a blocking Io sends its requests."""

    def call(self, request: Any, until: float) -> Any: ...


class BlockingSignal(Signal, Protocol):
    """A signal that a thread can block on: a ThreadSignal, or a bell that an engine brings."""

    def wait(self, timeout: float | None = None) -> bool: ...


class ThreadSignal:
    """A flag that one thread waits for and any thread sets: a bare lock, half as dear as a threading.Event."""

    __slots__ = ("_flag", "_gate")

    def __init__(self) -> None:
        self._flag = False
        self._gate = threading.Lock()
        self._gate.acquire()

    def set(self) -> None:
        self._flag = True
        # Two may set it at once; the gate is open once.
        with suppress(RuntimeError):
            self._gate.release()

    def clear(self) -> None:
        self._flag = False

    def is_set(self) -> bool:
        return self._flag

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is set or the time is over; whether it was set. The gate may be open from before it was cleared."""
        until = None if timeout is None else clock.now() + timeout
        while not self._flag:
            left = -1.0 if until is None else until - clock.now()
            if until is not None and left <= 0:
                return False
            self._gate.acquire(timeout=min(left, threading.TIMEOUT_MAX))
        return True


class ThreadEvent(threading.Event):
    """An event whose waiters may be interrupted at any moment.

    `threading.Event` is Python code around a lock. An interrupt inside it leaves that lock held,
    and the thread that sets the event then waits for ever.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False
        self._signals: list[ThreadSignal] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        for signal in list(self._signals):
            signal.set()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is set or the time is over; whether it is set."""
        signal = ThreadSignal()
        self._signals.append(signal)
        try:
            # A set before the signal was in place wakes nobody.
            return self._is_set or signal.wait(timeout)
        finally:
            self._signals.remove(signal)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a call for a caller of the API. An EngineFailure leaves it as the public error."""
    try:
        return drive(work)
    except EngineFailure as failure:
        error = failure.public()
    try:
        raise error
    finally:
        # Its traceback has this frame, and would keep the call alive until the next search for garbage.
        del error


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine whose awaitables never suspend: one call, or an engine's part of one."""
    try:
        begin(work)
        work.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    except BaseException as error:
        if not isinstance(error, HoldfastError):
            free_left_locks()
        raise
    finally:
        # An interrupt may have come before its first bytecode. One that has run is closed already.
        work.close()
    raise AssertionError("a blocking recipe suspended: it awaited something that is not its Io's")


def in_thread(work: Coroutine[Any, Any, None]) -> threading.Thread:
    """Start a keeper in a thread of its own."""
    thread = threading.Thread(target=run, args=(work,), name="holdfast-keeper", daemon=True)
    start(thread)
    return thread


def start(thread: threading.Thread) -> None:
    """Start a thread from another new one, where no signal handler runs.

    `Thread.start` waits for the thread in Python code. An interrupt there can leave a lock held
    without which the new thread never begins.
    """
    _thread.start_new_thread(thread.start, ())


class BlockingIo:
    """Awaits by blocking the thread."""

    awaits = False
    now = staticmethod(clock.now)
    uniform = staticmethod(random.uniform)
    task = staticmethod(running_task)
    running = staticmethod(running_call)
    has_ended = staticmethod(has_ended)

    def __init__(self, port: BlockingPort) -> None:
        self.port = port

    def check_caller(self) -> None:
        """Every thread may call."""

    async def call(self, request: Any, until: float) -> Any:
        return self.port.call(request, until)

    async def wait(self, signal: Signal, until: float | None) -> bool:
        # To ask a protocol whether this is one of its own takes longer than all else here.
        return cast(BlockingSignal, signal).wait(None if until is None else max(0.0, until - clock.now()))

    def shielded(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        return work

    async def apart(self, function: Callable[[], None]) -> None:
        # Signal handlers run in the main thread only.
        if threading.current_thread() is not threading.main_thread():
            function()
            return
        call, done, failures = running_call(), ThreadSignal(), list[BaseException]()

        def work() -> None:
            try:
                if call is not None:
                    # As a part of this call, which may have borrowed what is to be closed.
                    begin(call)
                function()
            except BaseException as error:  # noqa: BLE001 raised below, in the thread of the caller
                failures.append(error)
            finally:
                done.set()

        try:
            _thread.start_new_thread(work, ())
        except RuntimeError:
            # The interpreter ends, and starts no more threads.
            function()
            return
        done.wait()
        if failures:
            raise failures[0]

    def signal(self) -> ThreadSignal:
        return ThreadSignal()

    def event(self) -> tuple[Event, Callable[[], None]]:
        event = ThreadEvent()
        return event, event.set

    def call_back(self, function: Callable[..., object], *args: object) -> None:
        start(threading.Thread(target=function, args=args, name="holdfast-callback", daemon=True))
