"""Asking several nodes at the same time, for threads: a connection to each, and a few such teams."""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from hiredis import ReplyError

from holdfast.engines.redis.route import OneServer
from holdfast.engines.redlock.nodes import Answers, NoAnswer, Round, majority_answered
from holdfast.engines.redlock.openings import Openings
from holdfast.engines.redlock.rests import Rests
from holdfast.engines.redlock.tail import Tail
from holdfast.engines.resp.blocking import IDLE, TICK, Connection
from holdfast.engines.resp.wire import AnyRequest, Lost
from holdfast.runtime import clock
from holdfast.runtime.call_pool import CallPool, PoolItem

UNDER_WAY = NoAnswer("its answer is still to come", True)
MOST_BEHIND = 8
"""How many answers of one node are still to come before somebody looks for them who needs none of it."""


class Team:
    """One connection to each node. One thread uses it at a time."""

    def __init__(self, routes: Sequence[OneServer], rests: Rests) -> None:
        self.routes, self.rests = routes, rests
        self._openings = Openings(routes, rests)
        self.connections = self._openings.connections
        self._tails: list[deque[tuple[Tail, float]]] = [deque() for _ in routes]
        """By node: whose answers are still to come on its connection, before any other, and until when."""

    def ask(self, round_: Round, until: float, alone: bool = False) -> Answers:
        """Send to all, then take the answers as they come. `alone` if no other thread of this client asks now."""
        answers: Answers = [NoAnswer("it was not asked", False)] * len(self.routes)
        nodes = range(len(self.routes)) if round_.nodes is None else sorted(round_.nodes)
        waiting: dict[int, int] = {}
        self._connect(nodes, self.rests.resting, round_.limit, until)
        now = clock.now()
        soon = min(until, now + round_.limit)
        unasked = self._send(round_.request, nodes, waiting, answers, until)
        tail = round_.tail
        if soon > now + TICK:
            self._collect_soon(round_, waiting, answers, soon, alone)
        if waiting and not (tail is not None and tail.over):
            self._collect(round_, waiting, answers, soon, until, lambda _: tail is not None and tail.over)
        if tail is not None and tail.over:
            self._go_on(tail, waiting, answers, soon)
            return answers
        if (waiting or unasked) and round_.nodes is None and not majority_answered(answers):
            # A node rests to save its limit, and is waited for no longer than that, while others are enough.
            if unasked:
                self._connect(unasked, frozenset, round_.limit, until)
                self._send(round_.request, unasked, waiting, answers, until)
            self._collect(round_, waiting, answers, until, until, majority_answered)
        for node in waiting.values():
            self.rests.failed(node)
            answers[node] = self._lose(node, Lost("no answer in time", silent=True))
        return answers

    def _go_on(self, tail: Tail, waiting: dict[int, int], answers: Answers, soon: float) -> None:
        """Let the caller go on; who asks next finds the answers that are still to come."""
        behind = frozenset([node for node, answer in enumerate(answers) if isinstance(answer, NoAnswer)])
        if behind:
            tail.begin(behind)
        for node in waiting.values():
            answers[node] = UNDER_WAY
            self._tails[node].append((tail, soon))

    def _send(
        self, request: AnyRequest, nodes: Sequence[int], waiting: dict[int, int], answers: Answers, until: float
    ) -> list[int]:
        """Send to these nodes, and note in `waiting` who is waited for, by file number; who has no connection."""
        packed, now = request.packed(False), clock.now()
        unasked = []
        for node in nodes:
            connection = self.connections[node]
            if connection is None:
                answers[node] = NoAnswer("cannot connect", False)
                unasked.append(node)
                continue
            try:
                # An encrypted one is bound to a time; the other takes a second at the most, and mostly no time at all.
                if connection.plain:
                    connection.write(packed)
                else:
                    connection.send(packed, until)
                connection.used = now
                waiting[connection.socket.fileno()] = node
            except Lost as lost:
                answers[node] = self._lose(node, lost)
        return unasked

    def _collect_soon(
        self, round_: Round, waiting: dict[int, int], answers: Answers, until: float, alone: bool
    ) -> None:
        """Take the answers one after the other while they come at once: most have come when the first one has."""
        for number, node in waiting.copy().items():
            connection = self.connections[node]
            assert connection is not None
            if not connection.plain:
                return
            try:
                reply = connection.receive_soon(alone)
                while reply is not False and self._tails[node]:
                    self._pay(node, reply)
                    reply = connection.received()
                    if reply is False:
                        reply = connection.receive_soon(alone)
                if reply is False:
                    return
                answered = self._take(connection, node, reply, round_, answers, until)
            except Lost as lost:
                answers[node] = self._lose(node, lost)
                answered = True
            if answered:
                del waiting[number]
                if round_.tail is not None and round_.tail.over:
                    return

    def _take(
        self, connection: Connection, node: int, reply: Any, round_: Round, answers: Answers, until: float
    ) -> bool:
        """Take a reply; False if the node did not know the script, and was sent it in full."""
        if round_.tail is not None:
            round_.tail.hear(reply)
        if isinstance(reply, ReplyError):
            if str(reply).startswith("NOSCRIPT"):
                connection.send(round_.request.packed_in_full(False), until)
                return False
            reply = NoAnswer(str(reply), True)
        answers[node] = reply
        return True

    def _pay(self, node: int, reply: Any) -> None:
        """Take a reply for whoever went on without it. An error pays for nothing: the heartbeats tell that node."""
        tail, _ = self._tails[node].popleft()
        if isinstance(reply, ReplyError):
            tail.lost()
        else:
            tail.came(node)

    def _catch_up(self, node: int, connection: Connection, end: float, until: float) -> bool:
        """Take what others went on without, as far as it comes by the end; whether the connection works.

        A node that has not answered within its limit is silent, as in any round.
        """
        tails = self._tails[node]
        try:
            while tails:
                reply = connection.received()
                if reply is False:
                    if not connection.readable(max(0.0, end - clock.now())):
                        break
                    reply = connection.receive(until)
                self._pay(node, reply)
        except Lost as lost:
            self._lose(node, lost)
            return False
        if tails and tails[0][1] <= clock.now():
            self.rests.failed(node)
            self._lose(node, Lost("no answer in time", silent=True))
            return False
        return True

    def _connect(self, nodes: Sequence[int], resting: Callable[[], frozenset[int]], limit: float, until: float) -> None:
        """Connect to the nodes that have no connection and do not rest: all at once, so that none delays another."""
        missing = []
        now = clock.now()
        for node in nodes:
            connection = self.connections[node]
            if connection is not None:
                in_use = now - connection.used <= IDLE and len(self._tails[node]) < MOST_BEHIND
                if in_use or self._works(node, connection, min(until, now + limit)):
                    continue
            missing.append(node)
        if missing:
            rest = resting()
            self._openings.make([node for node in missing if node not in rest], limit, until)

    def _works(self, node: int, connection: Connection, until: float) -> bool:
        """Whether a connection that was idle seems to work. If not, it is gone. What has come on it is taken."""
        tails = self._tails[node]
        if tails and not self._catch_up(node, connection, 0.0, until):
            return False
        if not tails and connection.closed_by_server():
            self._lose(node, Lost("the server closed the connection"))
            return False
        return True

    def _collect(
        self,
        round_: Round,
        waiting: dict[int, int],
        answers: Answers,
        end: float,
        until: float,
        enough: Callable[[Answers], bool],
    ) -> None:
        """Take the answers as they come, until all have come, or enough, or the end; what has begun to come by then."""
        poll = select.poll()
        for number in waiting:
            poll.register(number, select.POLLIN)
        while waiting and not enough(answers):
            ready = poll.poll(max(0.0, end - clock.now()) * 1000)
            if not ready:
                return
            for number, _ in ready:
                node = waiting[number]
                connection = self.connections[node]
                assert connection is not None
                try:
                    reply = connection.receive(until)
                    while reply is not False and self._tails[node]:
                        self._pay(node, reply)
                        reply = connection.received()
                    if reply is False or not self._take(connection, node, reply, round_, answers, until):
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
        while self._tails[node]:
            self._tails[node].popleft()[0].lost()
        return NoAnswer(lost.problem, True)

    @property
    def behind(self) -> bool:
        """Whether answers are still to come that somebody went on without."""
        return any(self._tails)

    def settle(self, wait: bool) -> None:
        """Take the answers that others went on without: what has come, or each until its limit is over."""
        for node, tails in enumerate(self._tails):
            connection = self.connections[node]
            if connection is not None and tails:
                end = tails[-1][1] if wait else 0.0
                self._catch_up(node, connection, end, max(end, clock.now() + TICK))

    def close(self) -> None:
        self._openings.close()


class NodesPort:
    """Rounds for blocking callers: threads take turns on a few teams of connections."""

    def __init__(self, routes: Sequence[OneServer], rests: Rests, most: int = 8) -> None:
        self.routes, self.rests, self.most = routes, rests, most
        self._start()

    def _start(self) -> None:
        self._teams: CallPool[Team] = CallPool(self.most, Team.close)
        self._closed = False

    def call(self, request: Round, until: float) -> Answers:
        item = self._teams.take(until)
        if item is None:
            return [NoAnswer("every connection is busy", False)] * len(self.routes)
        try:
            team = item.value
            if team is None:
                team = item.value = Team(self.routes, self.rests)
            answers = team.ask(request, until, self._teams.is_lone(item))
        except BaseException:
            # An interrupt in the middle: what comes back now is not for the next one who asks.
            self._drop(item)
            raise
        self._give(item)
        return answers

    def _give(self, item: PoolItem[Team]) -> None:
        """Take a team back that works. One with answers that nobody has read is settled before it is closed."""
        if self._closed and item.value is not None:
            # A connection with unread answers is reset, and a node might not read a release.
            item.value.settle(wait=True)
            self._drop(item)
        else:
            self._teams.give(item)

    def _drop(self, item: PoolItem[Team]) -> None:
        """Take a team back that must not be used again."""
        team, item.value = item.value, None
        if team is not None:
            team.close()
        self._teams.give(item)

    def settle(self, wait: bool) -> None:
        """Take the answers that callers went on without, on connections that nobody uses now."""
        seen: set[Team] = set()
        while True:
            # Those in use take them by themselves.
            item = self._teams.borrow_idle(lambda team: team.behind and team not in seen)
            if item is None:
                return
            try:
                assert item.value is not None
                seen.add(item.value)
                item.value.settle(wait)
            except BaseException:
                self._drop(item)
                raise
            self._give(item)

    def close(self) -> None:
        self._closed = True
        for team in self._teams.idle_values():
            team.settle(wait=True)
            team.close()

    def abandon(self) -> None:
        """This process is a fork. Closing a socket here says nothing: the parent has it too."""
        teams = self._teams
        self._start()
        for team in teams.idle_values():
            team.close()
