"""Asking ZooKeeper: several requests in one round trip, by threads and tasks alike."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
    UnimplementedError,
    UnknownSessionError,
)

from holdfast.engines.zookeeper.answer import Answer
from holdfast.engines.zookeeper.link import Batch, Link
from holdfast.errors import EngineFailure, Outcome
from holdfast.runtime import clock
from holdfast.runtime.asyncio import AsyncioSignal, call_in_loop
from holdfast.runtime.blocking import ThreadSignal
from holdfast.runtime.io import Io

ANSWERS = (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError, UnimplementedError)
"""Refusals that tell something about the nodes."""
_OVER = (SessionExpiredError, AuthFailedError, UnknownSessionError)
_DROPPED = (ConnectionLoss, OperationTimeoutError, SessionMovedError)
_FOLLOWS = (RolledBackError, RuntimeInconsistency)
"""What the other operations of a transaction are said to have failed with."""


class LinkOver(Exception):
    """The session that a request belongs to has ended."""


class Dropped(EngineFailure):
    """The connection broke before the answer came: what was sent may have been done."""


class Late(EngineFailure):
    """No answer came in time: what was sent may still be done."""


class ZooKeeperPort:
    """Waits, in a thread, until requests that were sent together are answered; whether they were in time."""

    def call(self, request: Sequence[Any], until: float) -> bool:
        if all(result.ready() for result in request):
            return True
        # Not a threading.Event: an interrupt inside one can leave its lock held, which the connection's thread needs.
        answered = ThreadSignal()
        Batch(request, answered.set)
        return answered.wait(max(0.0, until - clock.now()))


class ZooKeeperAsyncioPort:
    """The same for tasks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._answered: deque[AsyncioSignal] = deque()
        self._told = False
        """Whether the loop is about to look at what was answered."""

    async def call(self, request: Sequence[Any], until: float) -> bool:
        answered = AsyncioSignal(self.loop)
        Batch(request, partial(self._tell, answered))
        in_time = await answered.wait(max(0.0, until - clock.now()))
        return in_time or all(result.ready() for result in request)

    def _tell(self, answered: AsyncioSignal) -> None:
        """In the connection's thread, or in the loop's if the answer has come already.

        Waking the loop for each answer would take more time than all the rest of it.
        """
        self._answered.append(answered)
        if not self._told:
            try:
                self._told = True
                # Two: a signal handler may raise in the first one before it has woken the tasks.
                call_in_loop(self.loop, self._wake)
                call_in_loop(self.loop, self._wake)
            except BaseException:
                # An interrupt: otherwise no answer would wake the loop any more.
                self._told = False
                raise

    def _wake(self) -> None:
        # In this order: whoever is told of too late for this look wakes the loop again.
        self._told = False
        while self._answered:
            self._answered[0].set()
            self._answered.popleft()


class Asker:
    """Sends requests over a link through one Io."""

    def __init__(self, io: Io, address: str) -> None:
        self.io, self.address = io, address

    async def ready(self, link: Link, until: float, outcome: Outcome = "not done") -> None:
        """Wait until the link is connected; EngineUnavailable if that takes longer than `until`."""
        while not link.connected:
            if link.over is not None:
                raise LinkOver(link.over)
            signal = self.io.signal()
            link.when_changed(signal.set)
            if not await self.io.wait(signal, until):
                raise EngineFailure(self.address, f"no server can be reached{link.problem}", outcome)

    async def answers(self, link: Link, until: float, *results: Any) -> list[Any]:
        """What came of requests that were sent together: values, or refusals that tell something.

        Dropped if one of them was lost with its connection, LinkOver if the session is over.
        """
        if not await self.io.call(results, until):
            raise Late(self.address, "no answer came in time", "unknown")
        return [self._outcome(result) for result in results]

    async def answer(self, link: Link, until: float, result: Any) -> Any:
        """What came of one request."""
        (found,) = await self.answers(link, until, result)
        return found

    async def together(
        self,
        link: Link,
        until: float,
        transaction: Any,
        hear: Callable[[Answer], object] | None = None,
        *,
        first: bool = False,
    ) -> Any:
        """The results of a transaction's steps, or the one refusal that undid all of it.

        `hear` is called with the answer in the connection's thread. `first`: it is sent before all that waits.
        """
        sent = link.kazoo.commit_first(transaction) if first else transaction.commit_async()
        if hear is not None:
            sent.rawlink(hear)
        return self.verdict(await self.answer(link, until, sent))

    def verdict(self, results: Any) -> Any:
        """The results of a transaction's steps, or the one refusal that undid all of it."""
        if isinstance(results, Exception):
            return results
        refusals = [result for result in results if isinstance(result, Exception)]
        if not refusals:
            return results
        cause = next((refusal for refusal in refusals if not isinstance(refusal, _FOLLOWS)), refusals[0])
        return self._judged(cause)

    def _outcome(self, result: Any) -> Any:
        if result.exception is None:
            return result.value
        return self._judged(result.exception)

    def _judged(self, error: Any) -> Any:
        if isinstance(error, ANSWERS):
            return error
        if isinstance(error, _OVER):
            raise LinkOver(type(error).__name__) from error
        if isinstance(error, _DROPPED):
            raise Dropped(self.address, "the connection was lost before the answer came", "unknown") from error
        raise EngineFailure(self.address, f"ZooKeeper refused: {type(error).__name__}", "not done") from error

    async def read(self, link: Link, until: float, *sends: Any) -> list[Any]:
        """The answers to what only reads, each a function of the kazoo client: asked again if the connection breaks."""
        while True:
            await self.ready(link, until)
            try:
                return await self.answers(link, until, *(send(link.kazoo) for send in sends))
            except Dropped:
                continue
