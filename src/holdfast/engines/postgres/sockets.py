"""SocketWaiter for a socket, and taking turns on connections: for threads, and for tasks of a loop."""

from __future__ import annotations

import asyncio
import errno
import select
import time
from collections.abc import Callable
from typing import Protocol

from holdfast.engines.postgres.wire import WRITE, SocketWaiter, Wire, WireLost
from holdfast.runtime import clock
from holdfast.runtime.asyncio import AGAIN, forget_descriptor
from holdfast.runtime.call_pool import CallPool, PoolItem
from holdfast.runtime.task_turns import TaskPool, TaskTurns, settle

UNWATCHABLE = frozenset({errno.EBADF, errno.EEXIST, errno.ENOENT, errno.ENOMEM, errno.ENOSPC})
"""Errors with which the system refuses to watch a descriptor. An exception of a signal handler has none of them."""


class Turns(Protocol):
    """One may go at a time; the call that comes first goes first."""

    async def take(self, until: float) -> bool:
        """Wait for the turn; False if `until` comes first."""

    def give(self) -> None:
        """The turn is over."""


class Pool(Protocol):
    """Lends wires."""

    items: list[PoolItem[Wire]]

    async def take(self, until: float) -> PoolItem[Wire] | None:
        """Borrow one, made or still to be made; None if `until` comes first."""

    def give(self, item: PoolItem[Wire]) -> None:
        """Take it back, with the wire that it carries now."""

    def idle_values(self) -> list[Wire]:
        """Take the wires out of all that is not lent."""


class Sockets(SocketWaiter, Protocol):
    """What a connection needs of a runtime."""

    async def pause(self, seconds: float) -> None: ...

    def turns(self) -> Turns: ...

    def pool(self, most: int, discard: Callable[[Wire], object]) -> Pool: ...


class ThreadTurns:
    """Turns of threads. A call that ended without giving its turn back loses it to the next one."""

    def __init__(self) -> None:
        self._pool: CallPool[None] = CallPool(1, lambda _: None)

    async def take(self, until: float) -> bool:
        return self._pool.take(until) is not None

    def give(self) -> None:
        self._pool.give(self._pool.items[0])


class ThreadPool:
    """Wires of threads. A call that ended without giving its wire back loses it to the next one."""

    def __init__(self, most: int, discard: Callable[[Wire], object]) -> None:
        self._pool = CallPool(most, discard)
        self.items = self._pool.items
        self.give, self.idle_values = self._pool.give, self._pool.idle_values

    async def take(self, until: float) -> PoolItem[Wire] | None:
        return self._pool.take(until)


class ThreadSockets:
    """Waits by blocking the thread."""

    async def ready(self, descriptor: int, event: int, until: float) -> bool:
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT if event == WRITE else select.POLLIN)
        return bool(poll.poll(max(0.0, until - clock.now()) * 1000))

    def closing(self, descriptor: int) -> None:
        """A thread sees it by itself."""

    def opened(self, descriptor: int) -> None:
        """A thread remembers no descriptor."""

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - it blocks its thread, like everything here

    def turns(self) -> ThreadTurns:
        return ThreadTurns()

    def pool(self, most: int, discard: Callable[[Wire], object]) -> ThreadPool:
        return ThreadPool(most, discard)


class LoopSockets:
    """Waits on an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._awaited: dict[int, asyncio.Future[bool]] = {}

    async def ready(self, descriptor: int, event: int, until: float) -> bool:
        loop = self._loop
        came: asyncio.Future[bool] = loop.create_future()
        add, remove = (loop.add_writer, loop.remove_writer) if event == WRITE else (loop.add_reader, loop.remove_reader)
        timers: list[asyncio.TimerHandle] = []
        self._awaited[descriptor] = came
        try:
            try:
                add(descriptor, settle, came, True)
            except OSError as error:
                if error.errno not in UNWATCHABLE:
                    raise
                # EEXIST: an interrupt inside `add` or `remove` has left it in the system's list, but not in the loop's.
                # No method of a loop takes it out there. Closing the connection does.
                raise WireLost(f"the event loop cannot watch the connection: {error}") from error
            # Two: a signal handler may raise in the first one before it has woken the task.
            limit = max(0.0, until - clock.now())
            timers += [loop.call_later(limit + more, settle, came, False) for more in (0.0, AGAIN)]
            return await came
        finally:
            for timer in timers:
                timer.cancel()
            # Once it was closed, the number may be another socket's.
            if self._awaited.get(descriptor) is came:
                remove(descriptor)
                del self._awaited[descriptor]

    def closing(self, descriptor: int) -> None:
        # Also if no task waits: one may have been interrupted while it stopped waiting.
        forget_descriptor(self._loop, descriptor)
        came = self._awaited.pop(descriptor, None)
        if came is not None:
            settle(came, True)

    def opened(self, descriptor: int) -> None:
        forget_descriptor(self._loop, descriptor)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def turns(self) -> TaskTurns:
        return TaskTurns(self._loop)

    def pool(self, most: int, discard: Callable[[Wire], object]) -> TaskPool[Wire]:
        return TaskPool(most, discard, self._loop)
