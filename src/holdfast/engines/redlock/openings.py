"""Making connections to several nodes at once, for blocking callers: by a thread each, which ends with it."""

from __future__ import annotations

import _thread
from collections.abc import Sequence

from holdfast.core import quorum
from holdfast.engines.redis.route import OneServer
from holdfast.engines.redlock.rests import Rests
from holdfast.engines.resp.blocking import Connection
from holdfast.engines.resp.wire import Lost
from holdfast.runtime import clock
from holdfast.runtime.blocking import ThreadSignal


class Openings:
    """One connection to each node, or None, and those that are being made. One thread asks for them at a time.

    The thread that asks may be interrupted at any moment. So it shares no lock with the threads that connect: neither
    a `threading.Condition`, nor a `threading.Thread`, which has one inside.
    """

    def __init__(self, routes: Sequence[OneServer], rests: Rests) -> None:
        self._routes, self._rests = routes, rests
        self.connections: list[Connection | None] = [None] * len(routes)
        """A new one may come at any moment; one that is there is touched by whoever asks alone."""
        self._under_way: dict[int, float] = {}
        """By node: until when its thread tries."""
        self._changed = ThreadSignal()
        self._closed = False

    def make(self, nodes: Sequence[int], limit: float, until: float) -> None:
        """Wait for connections to these: each for its limit, and after that while no majority is connected.

        A busy machine is not a dead one. What comes later is there for the next one who asks.
        """
        now = clock.now()
        soon = now + limit
        ends = max(soon, until)
        for node in nodes:
            # One whose time is long over was interrupted before its thread began.
            if self._under_way.get(node, 0.0) + limit < now:
                self._under_way[node] = ends
                _thread.start_new_thread(self._make, (node, ends))
        while True:
            self._changed.clear()
            if self._under_way.keys().isdisjoint(nodes):
                break
            made = sum(connection is not None for connection in self.connections)
            left = (min(until, soon) if quorum.reached(made, len(self._routes)) else until) - clock.now()
            if left <= 0:
                break
            self._changed.wait(left)
        for node in nodes:
            if node in self._under_way:
                self._rests.failed(node)

    def _make(self, node: int, until: float) -> None:
        route = self._routes[node]
        try:
            connection = Connection(route.address, route.login, route.tls, until)
        except Lost:
            self._rests.failed(node)
        else:
            self._rests.works(node, connection.peer)
            self.connections[node] = connection
            # Whoever closes says so first, and looks at the connections after that: one of the two sees the other.
            if self._closed:
                connection.close()
        finally:
            self._under_way.pop(node, None)
            self._changed.set()

    def close(self) -> None:
        self._closed = True
        for connection in self.connections:
            if connection is not None:
                connection.close()
