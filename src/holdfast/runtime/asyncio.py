"""The asyncio driver."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import random
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import suppress
from contextvars import Context
from functools import partial
from ipaddress import ip_address
from types import coroutine
from typing import Any, Generic, Protocol, TypeVar

from holdfast.errors import EngineFailure, HoldfastError
from holdfast.runtime import clock
from holdfast.runtime.io import Event, Signal
from holdfast.runtime.task import LoopTask

log = logging.getLogger("holdfast")

T = TypeVar("T")

AGAIN = 0.1
"""After how many seconds a timer comes again, should the first one have been interrupted."""


class AsyncioPort(Protocol):
    """Where an asyncio Io sends its requests."""

    async def call(self, request: Any, until: float) -> Any: ...


def call_in_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: object) -> None:
    """Call a function in its loop from any thread; a loop that is closed has nobody left to hear it."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise


def run_in_loop(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], address: str, until: float) -> T:
    """Run a coroutine in the loop of another thread, and wait for it in this thread. EngineFailure if it does not end.

    A signal handler may raise anything in that thread. It must not come out in this one, which would end a keeper.
    """
    try:
        under_way = asyncio.run_coroutine_threadsafe(work, loop)
    except RuntimeError as error:
        work.close()
        raise EngineFailure(address, "the event loop is closed", "not done") from error
    try:
        return under_way.result(max(0.0, until - clock.now()))
    except EngineFailure:
        raise
    except (TimeoutError, concurrent.futures.CancelledError) as error:
        under_way.cancel()
        raise EngineFailure(address, "the event loop did not answer in time", "unknown") from error
    except BaseException as error:
        log.warning("%s: a request in the event loop was ended by an error", address, exc_info=error)
        raise EngineFailure(address, f"the request was ended in the event loop: {error!r}", "unknown") from error


async def in_own_thread(loop: asyncio.AbstractEventLoop, work: Callable[[], T]) -> T:
    """Do something that blocks, in a thread of its own: the application may keep the loop's executor busy."""
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - it is for the task that waits
            call_in_loop(loop, fail, error)
        else:
            call_in_loop(loop, finish, result)

    def fail(error: Exception) -> None:
        if not done.done():
            done.set_exception(error)

    def finish(result: T) -> None:
        if not done.done():
            done.set_result(result)

    threading.Thread(target=run, name="holdfast-look-up", daemon=True).start()
    return await done


async def connect(
    loop: asyncio.AbstractEventLoop,
    make: Callable[[], asyncio.BaseProtocol],
    address: tuple[str, int],
    tls: ssl.SSLContext | None,
    server_name: str = "",
) -> None:
    """Connect to the first address of a host that works, without the loop's executor.

    The certificate has to be for `server_name`, if that is not the host. `connection_made` is called twice.
    """
    host, port = address
    name = (server_name or host) if tls is not None else None
    *others, last = await _addresses(loop, host, port)
    for found in others:
        with suppress(OSError):
            await _connect_to(loop, make, (found, port), tls, name)
            return
    await _connect_to(loop, make, (last, port), tls, name)


async def _connect_to(
    loop: asyncio.AbstractEventLoop,
    make: Callable[[], asyncio.BaseProtocol],
    address: tuple[str, int],
    tls: ssl.SSLContext | None,
    name: str | None,
) -> None:
    made = await _socket(loop, *address)
    transport, protocol = await loop.create_connection(make, sock=made, ssl=tls, server_hostname=name)
    # Again: a signal handler may have raised when the loop called it.
    protocol.connection_made(transport)


async def _socket(loop: asyncio.AbstractEventLoop, address: str, port: int) -> socket.socket:
    """A connected socket. `create_connection` would leave its descriptor in the loop if an interrupt ended it."""
    made = socket.socket(socket.AF_INET if ip_address(address).version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        forget_descriptor(loop, made.fileno())
        await loop.sock_connect(made, (address, port))
    except BaseException:
        forget_descriptor(loop, made.fileno())
        made.close()
        raise
    return made


def abort(loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
    """Close a connection at once. After an interrupt it has to be called again, and can be."""
    transport.abort()
    # asyncio does not repeat what an interrupt inside `abort` or `write` has left undone. In uvloop's code no interrupt
    # can come, and its `remove_reader` refuses the descriptor of a transport.
    wire = transport.get_extra_info("socket") if isinstance(loop, asyncio.SelectorEventLoop) else None
    if wire is not None and wire.fileno() >= 0:
        forget_descriptor(loop, wire.fileno())


def forget_descriptor(loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
    """Make a loop watch nothing by this number: a new socket has it, or its socket is about to be closed.

    An exception of a signal handler can end asyncio's code half-way. The loop may then go on believing that it watches
    a closed descriptor. It would not tell the system of the next socket with that number, and wait for it in vain.
    """
    if not loop.is_closed():
        for remove in (loop.remove_reader, loop.remove_writer):
            # The loop believed that it watched it, the system did not. After this error the loop has forgotten it.
            with suppress(FileNotFoundError):
                remove(descriptor)


async def _addresses(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[str]:
    """The addresses of a host. `create_connection` would ask the executor for those of a name."""
    try:
        ip_address(host)
    except ValueError:
        found = await in_own_thread(loop, partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM))
        return list(dict.fromkeys(str(info[4][0]) for info in found))
    return [host]


def go_on(results: Iterable[tuple[asyncio.Future[Any], Any]]) -> None:
    """Set results outside of any task, and let each task that waits for one go on at once.

    A future puts it in line for the loop's next turn, which costs more than all that the loop does otherwise.
    """
    for future, result in results:
        waiting = future._callbacks
        if waiting and len(waiting) == 1:
            ((wake, context),) = waiting
            started = False
            try:
                future.remove_done_callback(wake)
                future.set_result(result)
                run = context.run
                started = True
                run(wake, future)
            except BaseException:
                if not started:
                    _put_in_line(future, result, wake, context)
                raise
        elif not future.done():
            future.set_result(result)


def _put_in_line(future: asyncio.Future[Any], result: Any, wake: Callable[..., object], context: Context) -> None:
    """An interrupt has come before the task that waits could go on: it goes on in the loop's next turn."""
    forgotten = not future._callbacks
    if not future.done():
        future.set_result(result)
    if forgotten:
        future.get_loop().call_soon(wake, future, context=context)


class Deaf:
    """What a task waits for instead of a future that a cancellation of the task must not touch.

    To a task it looks like that future; it only remembers that a cancellation came.
    """

    __slots__ = ("_asyncio_future_blocking", "add_done_callback", "cancelled", "get_loop")

    def __init__(self) -> None:
        self.cancelled: asyncio.CancelledError | None = None
        # The future's own, in C. A task that meets an exception while it calls one of them would never go on.
        self.add_done_callback: Callable[..., object]
        self.get_loop: Callable[[], asyncio.AbstractEventLoop]

    def stand_for(self, future: asyncio.Future[Any]) -> Deaf:
        """Be waited for in place of this one."""
        # What a future says to the task that awaits it, and a task takes back: now between the task and us.
        future._asyncio_future_blocking = False
        self._asyncio_future_blocking = True
        self.add_done_callback, self.get_loop = future.add_done_callback, future.get_loop
        return self

    def cancel(self, msg: object = None) -> bool:
        self.cancelled = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        return True


@coroutine
def _finish(work: Coroutine[Any, Any, T], pending: Any) -> Generator[Any, Any, T]:
    """Go on to its end with a coroutine that waits for `pending`; a cancellation meanwhile is raised after that."""
    deaf = Deaf()
    while True:
        try:
            try:
                if pending is None:
                    yield None
                else:
                    yield deaf.stand_for(pending)
            except BaseException as error:  # noqa: BLE001 - it is the work's, whatever it is
                if pending is not None or not isinstance(error, asyncio.CancelledError):
                    pending = work.throw(error)
                    continue
                # Between two turns of the loop there is no future to be deaf for.
                deaf.cancelled = error
            pending = work.send(None)
        except StopIteration as stop:
            if deaf.cancelled is not None:
                # The work is done and its outcome known; the caller was told to stop, and stops now.
                raise deaf.cancelled from None
            return stop.value  # type: ignore[no-any-return]
        except Exception:
            if deaf.cancelled is not None:
                raise deaf.cancelled from None
            raise


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Await work for so long, TimeoutError after that.

    In a task of its own: `asyncio.timeout` would cancel the caller's, which is deaf while shielded.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=max(0.0, seconds))
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        raise
    except BaseException:
        # An interrupt: the caller waits no longer.
        task.cancel()
        raise
    if not done:
        task.cancel()
        await asyncio.wait({task})
        raise TimeoutError
    return task.result()


class SharedCall(Generic[T]):
    """A call that outlives its callers: one that is cancelled leaves the result to the next one."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._begin = begin
        self._task: asyncio.Task[T] | None = None

    async def result(self) -> T:
        """What the call under way comes to, or a new one. Each result goes to one caller."""
        while True:
            if self._task is None:
                self._task = asyncio.create_task(self._begin(), name="holdfast-call")
                self._task.add_done_callback(_take_note)
            task = self._task
            await asyncio.wait({task})
            if self._task is task:
                self._task = None
                return task.result()

    async def settle(self) -> None:
        """Wait until nothing is under way; a result that has no caller is dropped."""
        task = self._task
        if task is not None:
            await asyncio.wait({task})
            await asyncio.sleep(0)  # a caller that still waits goes first
            if self._task is task:
                self._task = None


def _take_note(task: asyncio.Task[Any]) -> None:
    """Its callers may all be gone when it fails: asyncio must not print that no caller has asked for the error."""
    if not task.cancelled():
        task.exception()


class AsyncioSignal:
    """A flag that one task waits for and any thread sets."""

    __slots__ = ("_flag", "_loop", "_waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._flag = loop, False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        self._flag = True
        if self._waiter is not None:
            if asyncio._get_running_loop() is self._loop:
                self._wake()
            else:
                call_in_loop(self._loop, self._wake)

    def clear(self) -> None:
        self._flag = False

    def is_set(self) -> bool:
        return self._flag

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, seconds: float | None) -> bool:
        self._waiter = self._loop.create_future()
        # The flag is looked at after the waiter is in place, so that a set in between is not missed.
        if self._flag:
            self._waiter = None
            return True
        # Two: a signal handler may raise in the first one before it has woken the task.
        limit = max(0.0, seconds or 0.0)
        timers = [] if seconds is None else [self._loop.call_later(limit + more, self._wake) for more in (0.0, AGAIN)]
        try:
            await self._waiter
        finally:
            self._waiter = None
            for timer in timers:
                timer.cancel()
        return self._flag


class AsyncioIo:
    """Awaits on the running loop."""

    awaits = True
    now = staticmethod(clock.now)
    uniform = staticmethod(random.uniform)

    def __init__(self, port: AsyncioPort, loop: asyncio.AbstractEventLoop) -> None:
        self.port, self.loop = port, loop
        self._callbacks: set[asyncio.Task[Any]] = set()

    def check_caller(self) -> None:
        if asyncio._get_running_loop() is not self.loop:
            state = "was closed" if self.loop.is_closed() else "is another one"
            raise HoldfastError(
                f"this client was connected in an event loop that {state}, and serves only that one: "
                "connect again in this loop"
            )

    def task(self) -> LoopTask | None:
        running = asyncio._get_running_loop()
        if running is None:
            return None  # the keeper's thread
        if running is not self.loop:
            self.check_caller()
        return asyncio.current_task(running)

    running = task

    def call(self, request: Any, until: float) -> Coroutine[Any, Any, Any]:
        if asyncio._get_running_loop() is not self.loop:
            self.check_caller()
        return self.port.call(request, until)

    async def wait(self, signal: Signal, until: float | None) -> bool:
        self.check_caller()
        assert isinstance(signal, AsyncioSignal)
        return await signal.wait(None if until is None else until - clock.now())

    def has_ended(self, call: object) -> bool:
        return isinstance(call, asyncio.Future) and call.done()

    async def shielded(self, work: Coroutine[Any, Any, T]) -> T:
        # In the caller's own task: another one would cost more than all the rest of a release.
        try:
            pending = work.send(None)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        return await _finish(work, pending)

    async def apart(self, function: Callable[[], None]) -> None:
        # What it closes belongs to the loop. An exception of a signal handler ends the loop, not this call.
        function()

    def signal(self) -> AsyncioSignal:
        return AsyncioSignal(self.loop)

    def event(self) -> tuple[Event, Callable[[], None]]:
        event = asyncio.Event()
        return event, partial(self._set, event)

    def _set(self, event: asyncio.Event) -> None:
        if asyncio._get_running_loop() is self.loop:
            event.set()  # at once: whoever asks in this very turn is told the truth
        else:
            call_in_loop(self.loop, event.set)

    def call_back(self, function: Callable[..., object], *args: object) -> None:
        call_in_loop(self.loop, self._run_callback, function, *args)

    def _run_callback(self, function: Callable[..., object], *args: object) -> None:
        result = function(*args)
        if asyncio.iscoroutine(result):
            task = self.loop.create_task(result)
            self._callbacks.add(task)
            task.add_done_callback(self._callbacks.discard)


class LoopPulse:
    """Whether a loop still turns, as seen from another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asked: float | None = None

    def stalled(self) -> float:
        """For how many seconds the loop has owed an answer; asks each time. For ever if it was closed."""
        if self._loop.is_closed():
            return float("inf")
        now, asked = clock.now(), self._asked
        if asked is None:
            asked = self._asked = now
        # Each time: a signal handler may raise in the loop's thread before the loop has answered the question before.
        call_in_loop(self._loop, self._answer)
        return now - asked

    def _answer(self) -> None:
        self._asked = None
