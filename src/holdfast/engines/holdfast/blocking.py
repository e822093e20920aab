"""The wire for blocking callers."""

from __future__ import annotations

import threading
from typing import Any

from holdfast.engines.holdfast.desk import Desk
from holdfast.engines.holdfast.line import Line
from holdfast.engines.resp import Address
from holdfast.runtime.blocking import BlockingIo


class ThreadLock:
    """A lock for `async with` that never suspends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


class BlockingWire:
    """Connections that block the thread."""

    lock = ThreadLock

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def open(self, address: Address, until: float) -> Line:
        return Line(address, self._desk.route, self._desk.hear, until)

    async def call(self, link: Line, packed: bytes, until: float) -> Any:
        return link.call(packed, until)

    async def pause(self, seconds: float) -> None:
        threading.Event().wait(seconds)


class PortIo(BlockingIo):
    """Awaits a port whose awaitables never suspend."""

    async def call(self, request: Any, until: float) -> Any:
        return await self.port.call(request, until)
