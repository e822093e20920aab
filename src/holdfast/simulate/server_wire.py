"""The client's end of a connection to the simulated lock server: under the real port, words and papers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from hiredis import PushNotification, Reader, ReplyError

from holdfast.engines.holdfast.desk import Desk
from holdfast.engines.holdfast.words import Request, Step, many
from holdfast.engines.resp.wire import Address, Lost
from holdfast.runtime.simulated import Machine, Pause, SimulatedSignal, World, suspend
from holdfast.simulate.network import Exchange, Network
from holdfast.simulate.streams import OVER, Cable

if TYPE_CHECKING:
    from holdfast.simulate.lock_server import LockServer


class SimulatedLink:
    """A connection that is logged in. Replies come in the order of the requests, pushes in between."""

    def __init__(self, world: World, address: Address, cable: Cable, desk: Desk) -> None:
        self.address = address
        self.problem: str | None = None
        """Why it is not usable any more."""
        self.session: str | None = None
        """For whom it speaks."""
        self._world, self._cable, self._desk = world, cable, desk
        self._reader = Reader()
        self._waiting: deque[Exchange] = deque()
        self._heard = world.time
        self._leaving: str | None = None
        """Why it ends with the last reply."""
        cable.down.end = self

    def leave(self, problem: str) -> None:
        """End it, as soon as those who have asked have their replies."""
        self._leaving = problem
        if not self._waiting:
            self.end(problem)

    def send(self, packed: bytes) -> Exchange:
        """Send a request, whose answer will be in the exchange."""
        exchange = Exchange(self._world)
        self._waiting.append(exchange)
        self._cable.up.send(packed)
        return exchange

    def received(self, data: bytes) -> None:
        self._heard = self._world.time
        self._reader.feed(data)
        reply = self._reader.gets()
        while reply is not False:
            if isinstance(reply, PushNotification):
                self._desk.hear(reply)
            else:
                self._waiting.popleft().answered(reply)
            reply = self._reader.gets()
        if self._leaving is not None and not self._waiting:
            self.end(self._leaving)

    def lost(self, problem: str) -> None:
        """The connection is gone: whoever waits is told, and what was pushed may be lost."""
        spoken, ended = self.session is not None, self.problem is not None
        self.end(problem)
        if spoken and not ended:
            self._desk.missed()

    def give_up(self, since: float) -> None:
        """A request was not answered in time; one over which nothing at all has come since is of no use."""
        if self._heard < since:
            self.lost("no answer in time")

    def end(self, problem: str) -> None:
        if self.problem is None:
            self.problem = problem
            self._cable.up.send(OVER)
            self._cable.down.close()
            while self._waiting:
                self._waiting.popleft().failed(problem, "unknown")


class Turn:
    """What one task at a time has."""

    def __init__(self, world: World) -> None:
        self._world, self._had = world, False
        self._waiting: deque[SimulatedSignal] = deque()

    async def take(self, until: float) -> bool:
        """Wait for it; whether it was had in time."""
        if not self._had:
            self._had = True
            return True
        signal = SimulatedSignal(self._world)
        self._waiting.append(signal)
        try:
            await suspend(Pause(until, signal))
        except BaseException:
            self._leave(signal)
            raise
        finally:
            signal.task = None
        if not signal.is_set():
            self._waiting.remove(signal)
        return signal.is_set()

    def _leave(self, signal: SimulatedSignal) -> None:
        if signal.is_set():
            self.release()
        else:
            self._waiting.remove(signal)

    def release(self) -> None:
        """Give it to the next who waits."""
        if self._waiting:
            self._waiting.popleft().set()
        else:
            self._had = False


class SimulatedWire:
    """Makes connections from one machine to the lock server, and speaks over them."""

    def __init__(self, network: Network, machine: Machine, find: Callable[[Address], LockServer], desk: Desk) -> None:
        self._network, self._world, self._machine = network, network.world, machine
        self._find, self._desk = find, desk

    def lock(self) -> Turn:
        return Turn(self._world)

    async def take(self, lock: Turn, until: float) -> bool:
        return await lock.take(self._machine.moment(until))

    async def pause(self, seconds: float) -> None:
        await suspend(Pause(self._machine.moment(self._machine.now() + seconds)))

    async def open(self, address: Address, until: float) -> SimulatedLink:
        server = self._find(address)
        cable = Cable(self._network, self._machine, server.machine)
        link = SimulatedLink(self._world, address, cable, self._desk)
        try:
            await self._shake_hands(server, cable, until)
            route = self._desk.route
            route.check(address, [await self._call(link, greeting, until) for greeting in route.greetings()])
        except Lost as lost:
            link.end(lost.problem)
            raise Lost(f"cannot connect to {address}: {lost.problem}", sent=False, silent=lost.silent) from lost
        except BaseException:
            link.end("it could not be opened")
            raise
        return link

    async def _shake_hands(self, server: LockServer, cable: Cable, until: float) -> None:
        exchange = Exchange(self._world)
        refused = partial(exchange.failed, "connection refused", "not done")
        if server.machine.dead:
            self._network.later(refused, self._machine)
        else:
            there = partial(self._accept, server, cable, exchange)
            self._network.carry(self._machine, server.machine, there)
        await self._answer(exchange, until)

    def _accept(self, server: LockServer, cable: Cable, exchange: Exchange) -> None:
        """On the server's machine."""
        server.accept(cable)
        self._network.carry(server.machine, self._machine, partial(exchange.answered, True))

    async def call(self, link: SimulatedLink, request: Request | Step, until: float) -> Any:
        # Half of the steps go as one of many; there is nobody here to share the request with.
        if isinstance(request, Step) and request.claim.id[-1] in "02468":
            reply = await self._call(link, many([request]), until)
            return reply if isinstance(reply, ReplyError) else reply[0]
        return await self._call(link, request.packed, until)

    async def _call(self, link: SimulatedLink, packed: bytes, until: float) -> Any:
        if link.problem is not None:
            raise Lost(link.problem, sent=False)
        sent = self._world.time
        exchange = link.send(packed)
        try:
            return await self._answer(exchange, until)
        except Lost as lost:
            if lost.silent:
                link.give_up(sent)
            raise

    async def _answer(self, exchange: Exchange, until: float) -> Any:
        if not exchange.is_set():
            try:
                await suspend(Pause(self._machine.moment(until), exchange))
            finally:
                exchange.task = None
        if not exchange.is_set():
            raise Lost("no answer in time", silent=True)
        if exchange.problem:
            raise Lost(exchange.problem)
        return exchange.reply
