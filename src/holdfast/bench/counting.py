"""How many requests a client sends: counted around its Io, so that the product knows nothing of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from holdfast.engines.engine import Verbs
from holdfast.locks.client import Client
from holdfast.runtime.asyncio import AsyncioIo
from holdfast.runtime.blocking import BlockingIo


@runtime_checkable
class Counting(Protocol):
    """An engine whose requests are not its calls: some go over a stream, some travel together."""

    def count_requests(self, count: Callable[[], None]) -> None: ...


class Counter:
    """Counts what goes through the ports that it was put around."""

    def __init__(self) -> None:
        self.requests = 0
        self._lock = threading.Lock()

    def count(self) -> None:
        with self._lock:
            self.requests += 1

    def around(self, verbs: Verbs) -> None:
        """Count what these verbs send from now on."""
        io = verbs.io
        assert isinstance(io, BlockingIo | AsyncioIo), "requests are counted at a port, and this Io has none"
        io.port = CountedPort(io.port, self)

    def around_client(self, core: Client) -> None:
        """Count what a client sends, and what its keeper sends."""
        if isinstance(core.engine, Counting):
            core.start_keeper()
            core.engine.count_requests(self.count)
            return
        self.around(core.verbs)
        self.around(core.start_keeper().verbs)


class CountedPort:
    """A port that counts. What it returns is the port's own answer, awaitable or not."""

    def __init__(self, port: Any, counter: Counter) -> None:
        self._port, self._counter = port, counter

    def call(self, request: Any, until: float) -> Any:
        self._counter.count()
        return self._port.call(request, until)
