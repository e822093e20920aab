"""Asking several independent Redis nodes at the same time, each with a short limit: what is asked; and for tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hiredis import ReplyError

from holdfast.core import quorum
from holdfast.engines.redis.route import OneServer
from holdfast.engines.redlock.rests import Rests
from holdfast.engines.redlock.tail import Tail
from holdfast.engines.resp.tasks import Stream, open_stream
from holdfast.engines.resp.wire import AnyRequest, Lost
from holdfast.runtime import clock


@dataclass(slots=True)
class Round:
    """The same request for every node, or for some of them."""

    request: AnyRequest
    limit: float
    """How long each node is waited for, in seconds. All of them longer, while no majority has answered."""
    nodes: frozenset[int] | None = None
    """Which; None for all."""
    tail: Tail | None = None
    """Says when a blocking caller may go on before all have answered; None for never."""


@dataclass(slots=True)
class NoAnswer:
    """A node did not answer. If nothing was sent to it, nothing was done there."""

    problem: str
    sent: bool


Answers = list[Any]
"""By node: a reply, or NoAnswer."""


def majority_answered(answers: Answers) -> bool:
    """Whether a majority of all nodes has answered."""
    return quorum.reached(sum(not isinstance(answer, NoAnswer) for answer in answers), len(answers))


class Tally:
    """The answers of one round: whoever asked is woken once, when all have come."""

    __slots__ = ("answers", "complete", "missing", "until")

    def __init__(self, complete: asyncio.Future[None], answers: Answers) -> None:
        self.complete, self.answers = complete, answers
        self.missing: set[int] = set()
        """Nodes that were asked and have not answered."""
        self.until = 0.0
        """Until when nodes whose limit is over are waited for all the same, while no majority has answered."""

    def waits(self) -> bool:
        """Whether a node is waited for though its limit is over."""
        return clock.now() < self.until and not majority_answered(self.answers)

    def take(self, node: int, answer: Any) -> None:
        self.answers[node] = answer
        self.missing.discard(node)
        if not self.missing and not self.complete.done():
            self.complete.set_result(None)


class Vote:
    """One node's answer, as its connection gives it."""

    __slots__ = ("_given", "_node", "_rests", "_tally")

    def __init__(self, tally: Tally, node: int, rests: Rests) -> None:
        self._tally, self._node, self._rests, self._given = tally, node, rests, False

    def done(self) -> bool:
        return self._given

    def set_result(self, reply: Any, /) -> None:
        # Counted before it says so: what is interrupted here is told once more.
        self._tally.take(self._node, reply)
        self._given = True

    def set_exception(self, error: Lost, /) -> None:
        if error.silent:
            if self._tally.waits():
                return
            self._rests.failed(self._node)
        self._tally.take(self._node, NoAnswer(error.problem, True))
        self._given = True


class NodesAsyncioPort:
    """Rounds for tasks: one connection to each node, which carries the rounds of all of them."""

    def __init__(self, routes: Sequence[OneServer], rests: Rests, loop: asyncio.AbstractEventLoop) -> None:
        self.routes, self.rests, self.loop = routes, rests, loop
        self._streams: list[Stream | None] = [None] * len(routes)
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._under_way = 0
        self._closed = False

    async def call(self, request: Round, until: float) -> Answers:
        """The answers. Whoever is being granted something while the client is closed still gives it back here."""
        self._under_way += 1
        try:
            return await self._ask(request, until)
        finally:
            self._under_way -= 1
            if self._closed and not self._under_way:
                self.close()

    async def _ask(self, request: Round, until: float) -> Answers:
        answers: Answers = [NoAnswer("it was not asked", False)] * len(self.routes)
        nodes = range(len(self.routes)) if request.nodes is None else sorted(request.nodes)
        await self._connect(nodes, self.rests.resting, request.limit, until)
        now = clock.now()
        soon = min(until, now + request.limit)
        tally = Tally(self.loop.create_future(), answers)
        if request.nodes is None:
            tally.until = until
        unasked = self._send(request.request, nodes, tally, soon)
        if unasked and request.nodes is None:
            # A node rests to save its limit while others are enough.
            if tally.missing:
                await asyncio.wait({tally.complete}, timeout=soon - now)
            if not majority_answered(answers):
                await self._connect(unasked, frozenset, request.limit, tally.until)
                if tally.complete.done():
                    tally.complete = self.loop.create_future()
                self._send(request.request, unasked, tally, tally.until)
        if tally.missing:
            await tally.complete
        for node in nodes:
            if isinstance(answers[node], ReplyError):
                answers[node] = await self._after_error(node, answers[node], request.request, tally.until or until)
        return answers

    def _send(self, request: AnyRequest, nodes: Sequence[int], tally: Tally, until: float) -> list[int]:
        """Send to these nodes; each has a vote, until then. Returns who has no connection."""
        packed = request.packed(False)
        unasked = []
        for node in nodes:
            stream = self._streams[node]
            if stream is None or stream.problem is not None:
                tally.answers[node] = NoAnswer("cannot connect", False)
                unasked.append(node)
            else:
                tally.missing.add(node)
                stream.send_for(Vote(tally, node, self.rests), packed, until)
        return unasked

    async def _after_error(self, node: int, error: ReplyError, request: AnyRequest, until: float) -> Any:
        """Send a script that a node does not know (any more) in full."""
        stream = self._streams[node]
        if not str(error).startswith("NOSCRIPT") or stream is None:
            return NoAnswer(str(error), True)
        try:
            reply = await stream.send(request.packed_in_full(False), until)
        except Lost as lost:
            return NoAnswer(lost.problem, True)
        return NoAnswer(str(reply), True) if isinstance(reply, ReplyError) else reply

    async def _connect(
        self, nodes: Sequence[int], resting: Callable[[], frozenset[int]], limit: float, until: float
    ) -> None:
        """Connect to nodes that have no connection and do not rest: all at once, by one task each.

        Each is waited for for its limit, and after that for as long as no majority is connected.
        What comes later is there for the next one who asks.
        """
        missing = [node for node in nodes if not self._usable(node)]
        if not missing:
            return
        rest, soon = resting(), clock.now() + limit
        awaited = [node for node in missing if node not in rest]
        for node in awaited:
            if node not in self._connecting or self._connecting[node].done():
                task = self._connecting[node] = self.loop.create_task(self._open(node, max(soon, until)))
                task.add_done_callback(partial(self._connected, node))
        while under_way := {node: self._connecting[node] for node in awaited if node in self._connecting}:
            made = sum(map(self._usable, range(len(self.routes))))
            end = min(until, soon) if quorum.reached(made, len(self.routes)) else until
            left = end - clock.now()
            if left <= 0:
                for node in under_way:
                    self.rests.failed(node)
                return
            await asyncio.wait(under_way.values(), timeout=left, return_when=asyncio.FIRST_COMPLETED)

    def _connected(self, node: int, _: asyncio.Task[None]) -> None:
        """Or not: nobody connects to it any more."""
        self._connecting.pop(node, None)

    def _usable(self, node: int) -> bool:
        stream = self._streams[node]
        return stream is not None and stream.problem is None

    async def _open(self, node: int, until: float) -> None:
        route = self.routes[node]
        try:
            stream = self._streams[node] = await open_stream(route.address, route.login, route.tls, self.loop, until)
            self.rests.works(node, stream.peer)
        except Lost:
            self.rests.failed(node)

    def close(self) -> None:
        """Close the connections, in the loop's thread."""
        self._closed = True
        for task in self._connecting.values():
            task.cancel()
        for stream in self._streams:
            if stream is not None:
                stream.end("the client was closed")
