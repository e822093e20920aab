"""The wire for tasks: one connection, on which the commands of concurrent tasks go out in one write."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Awaitable, Callable
from typing import Any

from hiredis import PushNotification, ReplyError

from holdfast.core.table.commands import Command
from holdfast.engines.holdfast import words
from holdfast.engines.holdfast.desk import Desk
from holdfast.engines.holdfast.line import Hear
from holdfast.engines.holdfast.port import Carry, Port
from holdfast.engines.resp.joint import Joint
from holdfast.engines.resp.tasks import Stream
from holdfast.engines.resp.wire import Address, Lost
from holdfast.runtime import clock
from holdfast.runtime.asyncio import connect, run_in_loop
from holdfast.runtime.task_turns import TaskTurns

HUNG_UP = getattr(select, "POLLRDHUP", 0)
"""That the other side sends no more, where the system tells that before one reads."""


class StepsJoint(Joint[words.Step, tuple[str, str]]):
    """Claims and releases that the server carries out one after the other, and answers as one."""

    __slots__ = ()

    def as_one(self) -> bytes:
        return words.many(self.requests)

    def alone(self) -> bytes:
        return self.parts[0][0].packed

    def set_result(self, reply: Any, /) -> None:
        self.give([reply] * len(self.parts) if isinstance(reply, ReplyError) else reply)


class PushStream(Stream):
    """A connection on which pushes come between replies."""

    at_once = 64
    """More than elsewhere: what arrives together is kept by one commit."""

    def __init__(self, address: Address, loop: asyncio.AbstractEventLoop, hear: Hear, lost: Callable[[], None]) -> None:
        super().__init__(address, loop)
        self.session: str | None = None
        """For whom it speaks."""
        self._hear, self._lost = hear, lost
        self._leaving: str | None = None
        """Why it ends with the last reply."""

    def _make_joint(self, request: words.Step) -> StepsJoint:
        return StepsJoint(request.group)

    @property
    def is_left(self) -> bool:
        """Whether the server has closed it, also where the loop was too busy to notice."""
        wire = None if self._transport is None else self._transport.get_extra_info("socket")
        if wire is None or wire.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(wire.fileno(), HUNG_UP)
        return bool(poll.poll(0))

    def leave(self, problem: str) -> None:
        """End it, as soon as those who have asked have their replies."""
        self._leaving = problem
        self._end_if_left()

    def _answer(self) -> None:
        super()._answer()
        self._end_if_left()

    def _end_if_left(self) -> None:
        if self._leaving is not None and not self._waiting and not self._unsent:
            self.end(self._leaving)

    def _take(self, reply: Any) -> None:
        if isinstance(reply, PushNotification):
            self._hear(reply)
        else:
            super()._take(reply)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        if self.session is not None:
            # One that was never spoken over for a session has brought nobody any push.
            self._lost()


def from_elsewhere(port: Port, loop: asyncio.AbstractEventLoop) -> Carry:
    """What sends a command by a loop's port, from a thread that may block."""

    async def carry(command: Command, until: float) -> Any:
        return run_in_loop(loop, port.call(command, until), port.desk.address, until)

    return carry


class TaskTurn(TaskTurns):
    """The turn to connect."""

    def release(self) -> None:
        self.give()


class TaskWire:
    """Connections of one loop."""

    def __init__(self, desk: Desk, loop: asyncio.AbstractEventLoop) -> None:
        self._desk, self._loop = desk, loop

    def lock(self) -> TaskTurn:
        return TaskTurn(self._loop)

    async def open(self, address: Address, until: float) -> PushStream:
        # In a task of its own: a limit in time cancels the task that it is set in, and one with shielded work is deaf.
        opening = self._loop.create_task(self._open(address, until))
        try:
            return await opening
        except asyncio.CancelledError:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                opening.result().end("whoever asked for it was cancelled")
            raise

    async def take(self, lock: TaskTurn, until: float) -> bool:
        return await lock.take(until)

    async def _open(self, address: Address, until: float) -> PushStream:
        route = self._desk.route
        stream = PushStream(address, self._loop, self._desk.hear, self._desk.missed)
        try:
            async with asyncio.timeout(max(0.001, until - clock.now())):
                await connect(self._loop, lambda: stream, address, route.tls)
                route.check(address, [await stream.send(greeting, until) for greeting in route.greetings()])
        except OSError as error:
            # Also when the time is over.
            problem = str(error) or "no answer in time"
            stream.end(problem)
            raise Lost(f"cannot connect to {address}: {problem}", sent=False) from error
        except BaseException:
            stream.end("it could not be opened")
            raise
        return stream

    def call(self, link: PushStream, request: words.Request | words.Step, until: float) -> Awaitable[Any]:
        if link.problem is not None:
            raise Lost(link.problem, sent=False)
        if not request.repeats and link.is_left:
            # What a server has closed does not take it, and nobody could tell that afterwards.
            return self._hear_the_end(link, until)
        return link.join(request, until) if type(request) is words.Step else link.send(request.packed, until)

    async def _hear_the_end(self, link: PushStream, until: float) -> Any:
        """Let those who wait have their replies, and then try elsewhere."""
        while link.problem is None and clock.now() < until:  # noqa: ASYNC110 - the loop has not read it yet
            await asyncio.sleep(0)
        raise Lost(link.problem or "the server has closed the connection", sent=False)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
