"""Waiting for a socket, and taking turns on connections: for threads, and for tasks of a loop."""

from __future__ import annotations

import asyncio
import select
import threading
import time
from collections import deque
from typing import Protocol

from holdfast.engines.postgres.wire import WRITE
from holdfast.runtime import clock


class Turns(Protocol):
    """So many may go at once; who comes first goes first."""

    async def take(self, until: float) -> bool:
        """Wait for a turn; False if `until` comes first."""

    def give(self) -> None:
        """The turn is over."""


class Sockets(Protocol):
    """What a connection needs of a runtime."""

    async def ready(self, descriptor: int, event: int, until: float) -> bool: ...

    def closing(self, descriptor: int) -> None:
        """A descriptor is about to be closed: whoever waits for it on a loop goes on, and finds it closed."""

    async def pause(self, seconds: float) -> None: ...

    def turns(self, number: int) -> Turns: ...


class ThreadTurns:
    """Turns of threads."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._lock = threading.Lock()
        self._line: deque[threading.Event] = deque()

    async def take(self, until: float) -> bool:
        with self._lock:
            if self._free and not self._line:
                self._free -= 1
                return True
            mine = threading.Event()
            self._line.append(mine)
        try:
            if mine.wait(max(0.0, until - clock.now())):
                return True
        except BaseException:
            self._leave(mine)
            raise
        return not self._leave(mine, keep=True)

    def _leave(self, mine: threading.Event, keep: bool = False) -> bool:
        """Leave the line; False if the turn came at the last moment, which is then kept or given on."""
        with self._lock:
            if mine in self._line:
                self._line.remove(mine)
                return True
        if not keep:
            self.give()
        return False

    def give(self) -> None:
        with self._lock:
            if self._line:
                self._line.popleft().set()
            else:
                self._free += 1


class ThreadSockets:
    """Waits by blocking the thread."""

    async def ready(self, descriptor: int, event: int, until: float) -> bool:
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT if event == WRITE else select.POLLIN)
        return bool(poll.poll(max(0.0, until - clock.now()) * 1000))

    def closing(self, descriptor: int) -> None:
        """A thread sees it by itself."""

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - it blocks its thread, like everything here

    def turns(self, number: int) -> ThreadTurns:
        return ThreadTurns(number)


class TaskTurns:
    """Turns of tasks."""

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self._free, self._loop = number, loop
        self._line: deque[asyncio.Future[bool]] = deque()

    async def take(self, until: float) -> bool:
        if self._free and not self._line:
            self._free -= 1
            return True
        mine: asyncio.Future[bool] = self._loop.create_future()
        self._line.append(mine)
        timer = self._loop.call_later(max(0.0, until - clock.now()), _settle, mine, False)
        try:
            return await asyncio.shield(mine)
        except asyncio.CancelledError:
            if mine.done() and mine.result():
                self.give()
            _settle(mine, False)
            raise
        finally:
            timer.cancel()

    def give(self) -> None:
        while self._line:
            following = self._line.popleft()
            if not following.done():
                following.set_result(True)
                return
        self._free += 1


class LoopSockets:
    """Waits on an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._awaited: dict[int, asyncio.Future[bool]] = {}

    async def ready(self, descriptor: int, event: int, until: float) -> bool:
        loop = self._loop
        came: asyncio.Future[bool] = loop.create_future()
        add, remove = (loop.add_writer, loop.remove_writer) if event == WRITE else (loop.add_reader, loop.remove_reader)
        add(descriptor, _settle, came, True)
        self._awaited[descriptor] = came
        timer = loop.call_later(max(0.0, until - clock.now()), _settle, came, False)
        try:
            return await came
        finally:
            timer.cancel()
            # Once it was closed, the number may be another socket's.
            if self._awaited.get(descriptor) is came:
                del self._awaited[descriptor]
                remove(descriptor)

    def closing(self, descriptor: int) -> None:
        came = self._awaited.pop(descriptor, None)
        if came is not None:
            # The loop would go on believing that it watches whatever has this number next.
            self._loop.remove_reader(descriptor)
            self._loop.remove_writer(descriptor)
            _settle(came, True)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def turns(self, number: int) -> TaskTurns:
        return TaskTurns(number, self._loop)


def _settle(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)
