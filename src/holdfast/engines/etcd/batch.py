"""Calls of tasks: transactions of many tasks travel together.

What comes while calls are under way goes into the next one, as transactions inside a
transaction: the cluster decides on all of them in one step, and writes them once. All parts of
such a step are compared with the state before it, and what they write has one revision. So a
step takes at most one part for each line: two claims on one name would have no order. Releases
and withdrawals of one name have none, and go together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from holdfast.engines.etcd import steps
from holdfast.engines.etcd.http2 import DEADLINE_EXCEEDED, UNAVAILABLE, CallFailed
from holdfast.engines.etcd.sockets import Arrival, LoopConnection
from holdfast.engines.etcd.wire import (
    CLOSED,
    SERVICE,
    Answer,
    Attempts,
    Crowded,
    Endpoint,
    Full,
    LeaseGone,
    Request,
    Wire,
    decode,
    serialize,
)
from holdfast.errors import EngineFailure
from holdfast.runtime import clock
from holdfast.runtime.asyncio import AGAIN, call_in_loop, in_own_thread

AT_ONCE = 2
"""How many steps may be under way: enough to keep the cluster busy, few enough to gather something."""
FEWEST_PARTS = 8
"""So many go together before a second step is begun: cluster and client are to work at the same time."""
MOST_PARTS = 48
"""etcd takes 128 operations in a transaction, those inside others included."""


async def in_turn(attempts: Attempts, ask: Callable[[Endpoint, float], Awaitable[Any]]) -> Answer:
    """Ask one endpoint after the other, each with its limit in seconds, until one answers."""
    while True:
        endpoint, limit = attempts.next()
        try:
            reply = await ask(endpoint, limit)
        except CallFailed as error:
            pause = attempts.failed(error)
            if pause:
                await asyncio.sleep(pause)
            continue
        return attempts.done(reply)


class Part:
    """One task's transaction, on its way."""

    __slots__ = ("answered", "begun", "repeated", "request", "unanswered", "until")

    def __init__(self, request: Request, until: float, answered: asyncio.Future[Answer]) -> None:
        self.request, self.until, self.answered = request, until, answered
        self.begun = clock.now()
        self.repeated = False
        """Whether it was part of a step that may have been applied before."""
        self.unanswered = False
        """Whether a try of such a step was not answered: it may still be applied."""


class EtcdAsyncioPort:
    """Calls that tasks of one loop await."""

    def __init__(self, wire: Wire, loop: asyncio.AbstractEventLoop) -> None:
        self.wire, self.loop = wire, loop
        self._waiting: list[Part] = []
        self._under_way: dict[object, int] = {}
        """The steps, and how many parts each has."""
        self._alone = True
        """Whether the last step had one part only: then nobody is waited for."""
        self._flush_due = self._closed = False
        self._answered_at = 0.0
        """When etcd last answered a step."""
        self._open: set[LoopConnection] = set()
        self._idle: dict[str, list[LoopConnection]] = {}
        """By endpoint: those that nobody uses now."""

    async def call(self, request: Request, until: float) -> Answer:
        part = Part(request, until, self.loop.create_future())
        if request.together is None:
            go_on(self._send([part]))
        else:
            self._waiting.append(part)
            if self._alone and not self._under_way:
                self._flush()
            elif len(self._under_way) < AT_ONCE and not self._flush_due:
                # After the tasks that are ready now have said what they want. Two: a signal handler may raise in the
                # first one before it has done anything.
                self.loop.call_soon(self._flush)
                self.loop.call_soon(self._flush)
                self._flush_due = True
        # Two: a signal handler may raise in the first one before it has told the task.
        limit = max(0.0, until - clock.now()) + 0.05
        timers = [self.loop.call_later(limit + more, self._give_up, part) for more in (0.0, AGAIN)]
        try:
            return await part.answered
        finally:
            for timer in timers:
                timer.cancel()
            if part in self._waiting:
                self._waiting.remove(part)

    def _give_up(self, part: Part) -> None:
        """Its step may take longer than this part has time."""
        if not part.answered.done():
            sent, engine = part not in self._waiting, self.wire.address.shown
            error = EngineFailure(engine, "etcd did not answer in time", "unknown" if sent else "not done")
            crowded = not sent and self._answered_at > part.begun
            part.answered.set_exception(Crowded(engine) if crowded else error)

    def _flush(self) -> None:
        self._flush_due = False
        while len(self._under_way) < AT_ONCE and (parts := self._gather()):
            try:
                go_on(self._step(parts))
            except BaseException:
                self._interrupted(parts)
                raise

    def _interrupted(self, parts: list[Part]) -> None:
        """An interrupt has ended a step. The loop tells those who wait, and begins the next one."""
        error = EngineFailure(self.wire.address.shown, "an interrupt ended the request", "unknown")
        # Python may close the coroutine of a step that was not woken, in any thread.
        call_in_loop(self.loop, _fail, parts, error)
        call_in_loop(self.loop, self._flush)

    def _gather(self) -> list[Part]:
        """Parts for one step: urgent ones first, then the earliest, and as many as the steps under way have.

        One whose time is over while it waits for its turn is not sent any more: it was not done, and is told so.
        """
        now = clock.now()
        if any(part.request.urgent for part in self._waiting):
            self._waiting.sort(key=_later)  # the order among equals is kept
        under_way = sum(self._under_way.values())
        most = min(MOST_PARTS, max(FEWEST_PARTS, -(-(len(self._waiting) + under_way) // AT_ONCE)))
        lines: dict[str | None, str] = {}
        chosen: list[Part] = []
        left: list[Part] = []
        for part in self._waiting:
            line, alike = part.request.together, part.request.alike
            if len(chosen) < most and part.until > now and (line not in lines or alike == lines[line] != ""):
                lines[line] = alike
                chosen.append(part)
            else:
                left.append(part)
        self._waiting = left
        return chosen

    async def _step(self, parts: list[Part]) -> None:
        self._alone = len(parts) == 1
        step = object()
        try:
            self._under_way[step] = len(parts)
            await self._send(parts)
            del self._under_way[step]
            # After those who were answered have said what they want next.
            self.loop.call_soon(self._flush)
        except BaseException:
            self._under_way.pop(step, None)
            self._interrupted(parts)
            raise

    async def _send(self, parts: list[Part]) -> None:
        try:
            await self._send_all(parts)
        except BaseException:
            self._interrupted(parts)
            raise

    async def _send_all(self, parts: list[Part]) -> None:
        until = max(part.until for part in parts)
        try:
            if len(parts) == 1:
                answers = [await self._attempt(parts[0].request, until)]
            else:
                answers = await self._together(parts, until)
        except (LeaseGone, Full) as refusal:
            if len(parts) > 1:
                # The lease of one of them, or the space that some of them need: each is sent by itself.
                for part in parts:
                    # What a full etcd has refused it may have applied.
                    part.unanswered = part.unanswered or refusal.repeated
                    part.repeated = part.unanswered or isinstance(refusal, Full)
                    go_on(self._send([part]))
            else:
                _fail(parts, self._refused(parts[0], refusal))
        except asyncio.CancelledError:
            # Nobody can cancel a step: it was what it waited for, by somebody who ends all tasks of the loop.
            _fail(parts, EngineFailure(self.wire.address.shown, "the event loop is ending", "unknown"))
        except EngineFailure as error:
            for part in parts:
                _fail([part], self._unsure(error) if part.repeated else error)
        except Exception as error:  # noqa: BLE001 - whoever asked gets it
            _fail(parts, error)
        else:
            self._answered_at = clock.now()
            for part, answer in zip(parts, answers, strict=True):
                answer.repeated = answer.repeated or part.repeated
                if not part.answered.done():
                    part.answered.set_result(answer)

    def _refused(self, part: Part, refusal: LeaseGone | Full) -> LeaseGone | Full:
        """A refusal of one part, which may have been sent before as part of a step."""
        if isinstance(refusal, Full):
            return Full(refusal.engine, refusal.problem, refusal.repeated or part.unanswered)
        return LeaseGone(refusal.repeated or part.repeated)

    @staticmethod
    def _unsure(error: EngineFailure) -> EngineFailure:
        """The error of a part that an earlier step may have applied."""
        return EngineFailure(error.engine, error.problem, "unknown")

    async def _together(self, parts: list[Part], until: float) -> list[Answer]:
        whole = await self._attempt(steps.all_of([part.request for part in parts]), until)
        return [
            Answer(each.response_txn, whole.revision, whole.term, whole.repeated) for each in whole.message.responses
        ]

    async def _attempt(self, request: Request, until: float) -> Answer:
        return await in_turn(Attempts(self.wire, request, until), partial(self._once, request))

    async def _once(self, request: Request, endpoint: Endpoint, limit: float) -> Any:
        wire, by = self.wire, clock.now() + limit
        token = wire.known_token
        if token is None:
            # Signing in takes a password hash of a tenth of a second.
            token = await in_own_thread(self.loop, partial(wire.token, limit))
        idle = self._idle.setdefault(endpoint.target, [])
        connection = None
        while idle and connection is None:
            last = idle.pop()
            if last.usable:
                connection = last
            else:
                self._drop(last)
        if self._closed:
            raise CallFailed(CLOSED, "the client was closed", sent=False)
        if connection is None:
            left = max(0.01, by - clock.now())
            connection = await LoopConnection.open(wire.address, endpoint.target, self.loop, left)
            if self._closed:
                connection.close()
                raise CallFailed(CLOSED, "the client was closed", sent=False)
            self._open.add(connection)
        try:
            left = max(0.01, by - clock.now())
            data = await connection.call(SERVICE + request.method, serialize(request.message), token, left)
        except CallFailed as failure:
            if failure.code in (UNAVAILABLE, DEADLINE_EXCEEDED):
                self._drop(connection)
            else:
                idle.append(connection)
            raise
        except BaseException:
            self._drop(connection)
            raise
        idle.append(connection)
        return decode(request.method, data)

    def _drop(self, connection: LoopConnection) -> None:
        self._open.discard(connection)
        connection.close()

    def close(self) -> None:
        """Close every connection, in the loop's own time."""
        self._closed = True

        def drop_all() -> None:
            for connection in list(self._open):
                self._drop(connection)

        call_in_loop(self.loop, drop_all)


def go_on(work: Coroutine[Any, Any, None]) -> None:
    """Run a step until it waits, and again from there when what it waits for has come.

    Without a task: that would begin in the loop's next turn, and be woken in the one after the answer.
    """
    try:
        pending = work.send(None)
        if isinstance(pending, Arrival):
            pending.wake = partial(go_on, work)
        else:
            # What a future says to the task that awaits it, and a task takes back.
            pending._asyncio_future_blocking = False
            pending.add_done_callback(lambda _: go_on(work))
    except StopIteration:
        return
    except BaseException:
        # An interrupt has come before it was known what wakes it: it ends, and is under way no more.
        work.close()
        raise


def _later(part: Part) -> bool:
    """Whether a part has to let others pass: releases, withdrawals and grants go first."""
    return not part.request.urgent


def _fail(parts: list[Part], error: Exception) -> None:
    for part in parts:
        if not part.answered.done():
            part.answered.set_exception(error)
