"""Making connections to several nodes at once, for blocking callers: by a thread each, which ends with it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from holdfast.core import quorum
from holdfast.engines.redis.route import OneServer
from holdfast.engines.redlock.rests import Rests
from holdfast.engines.resp.blocking import Connection
from holdfast.engines.resp.wire import Lost
from holdfast.runtime import clock


class Openings:
    """One connection to each node, or None, and those that are being made. One thread asks for them at a time."""

    def __init__(self, routes: Sequence[OneServer], rests: Rests) -> None:
        self._routes, self._rests = routes, rests
        self.connections: list[Connection | None] = [None] * len(routes)
        """A new one may come at any moment; one that is there is touched by whoever asks alone."""
        self._under_way: set[int] = set()
        self._changed = threading.Condition()
        self._closed = False

    def make(self, nodes: Sequence[int], limit: float, until: float) -> None:
        """Wait for connections to these: each for its limit, and after that while no majority is connected.

        A busy machine is not a dead one. What comes later is there for the next one who asks.
        """
        soon = clock.now() + limit
        with self._changed:
            new = [node for node in nodes if node not in self._under_way]
            self._under_way.update(new)
        for node in new:
            threading.Thread(target=self._make, args=(node, max(soon, until)), daemon=True).start()
        with self._changed:
            while not self._under_way.isdisjoint(nodes):
                made = sum(connection is not None for connection in self.connections)
                end = min(until, soon) if quorum.reached(made, len(self._routes)) else until
                left = end - clock.now()
                if left <= 0:
                    break
                self._changed.wait(left)
            for node in self._under_way.intersection(nodes):
                self._rests.failed(node)

    def _make(self, node: int, until: float) -> None:
        route = self._routes[node]
        try:
            connection = Connection(route.address, route.login, route.tls, until)
        except Lost:
            connection = None
        with self._changed:
            self._under_way.discard(node)
            if connection is None:
                self._rests.failed(node)
            elif self._closed:
                connection.close()
            else:
                self._rests.works(node)
                self.connections[node] = connection
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
        for connection in self.connections:
            if connection is not None:
                connection.close()
