"""Asking several independent Redis nodes at the same time, each with a short limit, without a thread a node."""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hiredis import ReplyError

from holdfast.core import quorum
from holdfast.engines.redis.route import OneServer
from holdfast.engines.resp.blocking import IDLE, TICK, Connection
from holdfast.engines.resp.tasks import Stream, open_stream
from holdfast.engines.resp.wire import AnyRequest, Lost
from holdfast.runtime import clock

REST = 1.0
"""For how long a node that did not answer is left alone, so that it does not cost its limit every time."""


@dataclass(slots=True)
class Round:
    """The same request for every node, or for some of them."""

    request: AnyRequest
    limit: float
    """How long each node is waited for, in seconds."""
    nodes: frozenset[int] | None = None
    """Which; None for all."""


@dataclass(slots=True)
class NoAnswer:
    """A node did not answer. If nothing was sent to it, nothing was done there."""

    problem: str
    sent: bool


Answers = list[Any]
"""By node: a reply, or NoAnswer."""


class Rests:
    """Which nodes are left alone for a while, known to all callers."""

    def __init__(self, count: int) -> None:
        self._until = [0.0] * count

    def resting(self) -> frozenset[int]:
        """Who is left alone now. Nobody, if the others are no majority: then there is nothing to lose by asking."""
        now = clock.now()
        found = frozenset(node for node, until in enumerate(self._until) if now < until)
        return frozenset() if quorum.out_of_reach(len(found), len(self._until)) else found

    def failed(self, node: int) -> None:
        self._until[node] = clock.now() + REST

    def works(self, node: int) -> None:
        self._until[node] = 0.0


class Team:
    """One connection to each node. One thread uses it at a time."""

    def __init__(self, routes: Sequence[OneServer], rests: Rests) -> None:
        self.routes, self.rests = routes, rests
        self.connections: list[Connection | None] = [None] * len(routes)

    def ask(self, round_: Round, until: float) -> Answers:
        """Send to all, then take the answers as they come."""
        answers: Answers = [NoAnswer("it was not asked", False)] * len(self.routes)
        packed = round_.request.packed(False)
        nodes = range(len(self.routes)) if round_.nodes is None else sorted(round_.nodes)
        self._connect(nodes, min(until, clock.now() + round_.limit))
        now = clock.now()
        until = min(until, now + round_.limit)
        waiting: dict[int, int] = {}
        for node in nodes:
            connection = self.connections[node]
            if connection is None:
                answers[node] = NoAnswer("cannot connect", False)
                continue
            try:
                connection.send(packed, until)
                waiting[connection.socket.fileno()] = node
            except Lost as lost:
                answers[node] = self._lose(node, lost)
        if until > now + TICK:
            self._collect_soon(round_.request, waiting, answers, until)
        if waiting:
            self._collect(round_.request, waiting, answers, until)
        return answers

    def _collect_soon(self, request: AnyRequest, waiting: dict[int, int], answers: Answers, until: float) -> None:
        """Take the answers one after the other while they come at once: most have come when the first one has."""
        for number, node in list(waiting.items()):
            connection = self.connections[node]
            assert connection is not None
            if not connection.plain:
                return
            try:
                reply = connection.receive_soon()
                if reply is False:
                    return
                answered = self._take(connection, node, reply, request, answers, until)
            except Lost as lost:
                answers[node] = self._lose(node, lost)
                answered = True
            if answered:
                del waiting[number]

    def _take(
        self, connection: Connection, node: int, reply: Any, request: AnyRequest, answers: Answers, until: float
    ) -> bool:
        """Take a reply; False if the node did not know the script, and was sent it in full."""
        if isinstance(reply, ReplyError):
            if str(reply).startswith("NOSCRIPT"):
                connection.send(request.packed_in_full(False), until)
                return False
            reply = NoAnswer(str(reply), True)
        connection.used = clock.now()
        answers[node] = reply
        return True

    def _connect(self, nodes: Sequence[int], until: float) -> None:
        """Connect to the nodes that have no connection and do not rest: all at once, so that none delays another."""
        threads = []
        now, resting = clock.now(), self.rests.resting()
        for node in nodes:
            connection = self.connections[node]
            if connection is not None:
                if now - connection.used <= IDLE or not connection.closed_by_server():
                    continue
                connection.close()
                self.connections[node] = None
            if node not in resting:
                threads.append(threading.Thread(target=self._open, args=(node, until), daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            # Connecting ends by itself when the time is over.
            thread.join()

    def _open(self, node: int, until: float) -> None:
        route = self.routes[node]
        try:
            self.connections[node] = Connection(route.address, route.login, route.tls, until)
        except Lost:
            self.rests.failed(node)
        else:
            self.rests.works(node)

    def _collect(self, request: AnyRequest, waiting: dict[int, int], answers: Answers, until: float) -> None:
        poll = select.poll()
        for number in waiting:
            poll.register(number, select.POLLIN)
        while waiting:
            ready = poll.poll(max(0.0, until - clock.now()) * 1000)
            if not ready:
                for node in waiting.values():
                    self.rests.failed(node)
                    answers[node] = self._lose(node, Lost("no answer in time", silent=True))
                return
            for number, _ in ready:
                node = waiting[number]
                connection = self.connections[node]
                assert connection is not None
                try:
                    if not self._take(connection, node, connection.receive(until), request, answers, until):
                        continue
                except Lost as lost:
                    answers[node] = self._lose(node, lost)
                poll.unregister(number)
                del waiting[number]

    def _lose(self, node: int, lost: Lost) -> NoAnswer:
        connection = self.connections[node]
        if connection is not None:
            connection.close()
            self.connections[node] = None
        return NoAnswer(lost.problem, True)

    def close(self) -> None:
        for connection in self.connections:
            if connection is not None:
                connection.close()


class NodesPort:
    """Rounds for blocking callers: threads take turns on a few teams of connections."""

    def __init__(self, routes: Sequence[OneServer], rests: Rests, most: int = 8) -> None:
        self.routes, self.rests, self.most = routes, rests, most
        self._start()

    def _start(self) -> None:
        self._idle: list[Team] = []
        self._free = threading.Semaphore(self.most)
        self._closed = False

    def call(self, request: Round, until: float) -> Answers:
        if not self._free.acquire(timeout=max(0.0, until - clock.now())):
            return [NoAnswer("every connection is busy", False)] * len(self.routes)
        try:
            try:
                team = self._idle.pop()
            except IndexError:
                team = Team(self.routes, self.rests)
            try:
                answers = team.ask(request, until)
            except BaseException:
                # An interrupt in the middle: what comes back now is not for the next one who asks.
                team.close()
                raise
            if self._closed:
                team.close()
            else:
                self._idle.append(team)
            return answers
        finally:
            self._free.release()

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def abandon(self) -> None:
        """This process is a fork. Closing a socket here says nothing: the parent has it too."""
        teams = self._idle
        self._start()
        for team in teams:
            team.close()


class Tally:
    """The answers of one round: whoever asked is woken once, when all have come."""

    __slots__ = ("answers", "complete", "missing")

    def __init__(self, complete: asyncio.Future[None], answers: Answers) -> None:
        self.complete, self.answers, self.missing = complete, answers, 0

    def take(self, node: int, answer: Any) -> None:
        self.answers[node] = answer
        self.missing -= 1
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
        self._given = True
        self._tally.take(self._node, reply)

    def set_exception(self, error: Lost, /) -> None:
        self._given = True
        if error.silent:
            self._rests.failed(self._node)
        self._tally.take(self._node, NoAnswer(error.problem, True))


class NodesAsyncioPort:
    """Rounds for tasks: one connection to each node, which carries the rounds of all of them."""

    def __init__(self, routes: Sequence[OneServer], rests: Rests, loop: asyncio.AbstractEventLoop) -> None:
        self.routes, self.rests, self.loop = routes, rests, loop
        self._streams: list[Stream | None] = [None] * len(routes)
        self._connecting: dict[int, asyncio.Task[None]] = {}

    async def call(self, request: Round, until: float) -> Answers:
        answers: Answers = [NoAnswer("it was not asked", False)] * len(self.routes)
        nodes = range(len(self.routes)) if request.nodes is None else sorted(request.nodes)
        await self._connect(nodes, min(until, clock.now() + request.limit))
        until = min(until, clock.now() + request.limit)
        packed = request.request.packed(False)
        tally = Tally(self.loop.create_future(), answers)
        for node in nodes:
            stream = self._streams[node]
            if stream is None or stream.problem is not None:
                answers[node] = NoAnswer("cannot connect", False)
            else:
                tally.missing += 1
                stream.send_for(Vote(tally, node, self.rests), packed, until)
        if tally.missing:
            await tally.complete
        for node in nodes:
            if isinstance(answers[node], ReplyError):
                answers[node] = await self._after_error(node, answers[node], request.request, until)
        return answers

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

    async def _connect(self, nodes: Sequence[int], until: float) -> None:
        """Connect to nodes that have no connection and do not rest: all at once, by one task each."""
        resting = self.rests.resting()
        for node in nodes:
            stream = self._streams[node]
            usable = stream is not None and stream.problem is None
            if not usable and node not in self._connecting and node not in resting:
                task = self._connecting[node] = self.loop.create_task(self._open(node, until))
                task.add_done_callback(lambda _, node=node: self._connecting.pop(node, None))  # type: ignore[misc]
        under_way = [self._connecting[node] for node in nodes if node in self._connecting]
        if under_way:
            await asyncio.wait(under_way, timeout=max(0.0, until - clock.now()))

    async def _open(self, node: int, until: float) -> None:
        route = self.routes[node]
        try:
            self._streams[node] = await open_stream(route.address, route.login, route.tls, self.loop, until)
            self.rests.works(node)
        except Lost:
            self.rests.failed(node)

    def close(self) -> None:
        """Close the connections, in the loop's thread."""
        for task in self._connecting.values():
            task.cancel()
        for stream in self._streams:
            if stream is not None:
                stream.end("the client was closed")
