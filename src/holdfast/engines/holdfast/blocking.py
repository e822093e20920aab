"""The wire for blocking callers."""

from __future__ import annotations

from typing import Any

from holdfast.engines.holdfast.desk import Desk
from holdfast.engines.holdfast.line import Line, UnderWay
from holdfast.engines.holdfast.words import Request, Step
from holdfast.engines.resp.wire import Address
from holdfast.errors import EngineFailure
from holdfast.runtime.blocking import BlockingIo, ThreadSignal
from holdfast.runtime.call_pool import CallPool
from holdfast.runtime.calls import UNDER_WAY


class ConnectingTurn(CallPool[None]):
    """The turn to connect."""

    def __init__(self) -> None:
        super().__init__(1, lambda _: None)

    def release(self) -> None:
        self.give(self.items[0])


class BlockingWire:
    """Connections that block the thread."""

    lock = ConnectingTurn

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def open(self, address: Address, until: float) -> Line:
        return Line(address, self._desk.route, self._desk.hear, until)

    async def call(self, link: Line, request: Request | Step, until: float) -> Any:
        if not request.repeats:
            # What a server has closed while nobody used it does not take it, and nobody could tell that afterwards.
            link.look()
        try:
            return link.call(request.packed, until)
        except UnderWay:
            raise EngineFailure(self._desk.address, UNDER_WAY, "not done") from None

    async def take(self, lock: ConnectingTurn, until: float) -> bool:
        taken = lock.take(until) is not None
        if not taken and lock.items[0].is_lent_here:
            raise EngineFailure(self._desk.address, UNDER_WAY, "not done")
        return taken

    async def pause(self, seconds: float) -> None:
        ThreadSignal().wait(seconds)


class PortIo(BlockingIo):
    """Awaits a port whose awaitables never suspend."""

    async def call(self, request: Any, until: float) -> Any:
        return await self.port.call(request, until)
