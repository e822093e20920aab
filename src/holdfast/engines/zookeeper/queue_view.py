"""What one client knows of one queue: one list serves all its claims there.

The view is never behind in the wrong direction: every node before a claim that is still there is in the view, or the
view says that it does not know. Nodes leave it when this client has removed them, or has read the record of their
removal. A node that is gone for another reason is a doubt, because an adopter may have taken its number.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable

from kazoo.exceptions import NoNodeError

from holdfast.engines.zookeeper.answer import Answer
from holdfast.engines.zookeeper.line import WRAP, Position, Stand, position, read
from holdfast.engines.zookeeper.link import Link
from holdfast.engines.zookeeper.withdrawals import Withdrawals


class QueueView:
    """The nodes of one queue, in order. It changes in the connection's thread, in the order of the server's replies."""

    def __init__(self, link: Link, parent: str, lock: threading.RLock) -> None:
        self.link, self.parent = link, parent
        self.withdrawals = Withdrawals(link, parent)
        self.own = 0
        """How many claims of this client are in the queue, or on their way."""
        self.lists = 0
        """How many lists have come."""
        self.listed_at = float("-inf")
        """When the last list that has come was asked for."""
        self.notes_seen_at = float("-inf")
        """When the notes of the first in the queue were read last."""
        self._lock = lock
        self._orders: list[int] = []
        self._writers: list[int] = []
        self._stands: dict[int, Stand] = {}
        self._order_of: dict[str, int] = {}
        self._highest: int | None = None
        """The highest order that was seen: of the numbers that wrap, made to go on."""
        self._complete_to: int | None = None
        """All that is there up to this order is in the view."""
        self._doubts: set[int] = set()
        self._asked: object | None = None
        """The request for a list that is under way."""
        self._told_now: list[Callable[[], object]] = []
        """Called when the list that is under way has come."""
        self._told_next: list[Callable[[], object]] = []
        """Called when the list after that one has come."""

    # What comes from the server, in the connection's thread

    def add(self, node: str) -> None:
        """A node of this client was made."""
        stand = read(node)
        assert stand is not None
        with self._lock:
            order = self._order(stand)
            if order in self._stands:
                self._forget(order)
            self._keep(order, stand)
            if self._highest is None or order > self._highest:
                if self._complete_to is not None and order == self._complete_to + 1:
                    self._complete_to = order
                self._highest = order

    def take(self, nodes: Iterable[str]) -> None:
        """The whole queue was listed."""
        with self._lock:
            stands = [stand for stand in map(read, nodes) if stand is not None]
            if self._highest is None and stands:
                self._highest = stands[0].number % WRAP
            found = sorted((self._order(stand), stand) for stand in stands)
            self._orders = [order for order, _ in found]
            self._writers = [order for order, stand in found if stand.exclusive]
            self._stands = dict(found)
            self._order_of = {stand.node: order for order, stand in found}
            self._doubts.clear()
            if found and (self._highest is None or found[-1][0] > self._highest):
                self._highest = found[-1][0]
            self._complete_to = self._highest
            self.lists += 1

    def removed(self, node: str) -> None:
        """A node is gone, and no adopter has taken its number."""
        with self._lock:
            order = self._order_of.get(node)
            if order is None:
                stand = read(node)
                order = None if stand is None or self._highest is None else self._order(stand)
            else:
                self._forget(order)
            if order is not None:
                self._doubts.discard(order)

    def gone(self, node: str) -> None:
        """A node is gone, for a reason that is not known."""
        with self._lock:
            order = self._order_of.get(node)
            if order is not None:
                self._forget(order)
                self._doubts.add(order)

    # Lists

    def ask(self, tell: Callable[[], object], now: float) -> None:
        """Call this when a list has come that was asked for from now on, or got lost with the connection."""
        with self._lock:
            if self._asked is not None:
                self._told_next.append(tell)
                return
            try:
                self._asked = request = object()
                self._told_now.append(tell)
                # With the lock: a signal handler may not come in between and wait for a list that is not asked for yet.
                self._send(request, now)
            except BaseException:
                # An interrupt: the list may not have been asked for, and the next caller asks for another one.
                self._asked, self._told_now = None, []
                raise

    def _send(self, request: object, now: float) -> None:
        answer = self.link.kazoo.get_children_async(self.parent)
        answer.rawlink(lambda answer: self._answered(answer, request, now))

    def _answered(self, answer: Answer, request: object, now: float) -> None:
        if answer.exception is None:
            self.take(answer.value)
            self.listed_at = now
        elif isinstance(answer.exception, NoNodeError):
            self.take(())
            self.listed_at = now
        with self._lock:
            if self._asked is not request:
                return  # it was interrupted, and another list may be under way
            told, self._told_now, self._told_next = self._told_now, self._told_next, []
            self._asked = following = object() if self._told_now else None
        if following is not None:
            self._send(following, now)
        for tell in told:
            tell()

    # What follows from it

    def knows(self, node: str) -> bool:
        """Whether all that is there before this node is in the view."""
        with self._lock:
            order = self._order_of.get(node)
            return order is not None and self._is_complete(order) and not any(doubt < order for doubt in self._doubts)

    def waits_for(self, node: str, blocker: str) -> bool:
        """Whether this node holds if a blocker, which is gone, was not adopted."""
        with self._lock:
            order, gone = self._order_of.get(node), read(blocker)
            if order is None or gone is None or not self._is_complete(order):
                return False
            doubted = self._order(gone)
            found = self.position(node)
            only = all(doubt == doubted for doubt in self._doubts if doubt < order)
            return only and found is not None and found.held

    def position(self, node: str) -> Position | None:
        """How the claim of this node stands; None if it is not in the queue."""
        with self._lock:
            order = self._order_of.get(node)
            if order is None:
                return None
            own = self._stands[order]
            if own.limit:
                return position(self.stands(), node)
            index, writers_before = bisect_left(self._orders, order), bisect_left(self._writers, order)
            if index == 0 or (writers_before == 0 and not own.exclusive):
                return Position(True, 0, None)
            before = self._orders[index - 1] if own.exclusive else self._writers[writers_before - 1]
            holding = max(1, bisect_left(self._orders, self._writers[0]))
            return Position(False, index - holding + 1, self._stands[before].node)

    def stands(self) -> list[Stand]:
        """The whole queue, in order."""
        with self._lock:
            return [self._stands[order] for order in self._orders]

    def first(self, most: int) -> list[Stand]:
        """The first so many in the queue."""
        with self._lock:
            return [self._stands[order] for order in self._orders[:most]]

    def _is_complete(self, order: int) -> bool:
        return self._complete_to is not None and order <= self._complete_to

    def _order(self, stand: Stand) -> int:
        """A number that goes on where the server's counter, an int32, wraps."""
        if self._highest is None:
            return stand.number % WRAP
        return self._highest + (stand.number - self._highest + WRAP // 2) % WRAP - WRAP // 2

    def _keep(self, order: int, stand: Stand) -> None:
        insort(self._orders, order)
        if stand.exclusive:
            insort(self._writers, order)
        self._stands[order] = stand
        self._order_of[stand.node] = order

    def _forget(self, order: int) -> None:
        stand = self._stands.pop(order)
        del self._order_of[stand.node]
        for kept in (self._orders, self._writers) if stand.exclusive else (self._orders,):
            del kept[bisect_left(kept, order)]
