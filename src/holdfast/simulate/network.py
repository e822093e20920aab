"""The simulated network: it delays, loses, repeats, holds back and cuts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from holdfast.errors import EngineFailure, Outcome
from holdfast.runtime.simulated import Machine, Pause, SimulatedIo, SimulatedSignal, World, suspend


@dataclass(frozen=True, slots=True)
class Weather:
    """How a network treats messages; each chance is for one message."""

    delay: float = 0.003
    """The longest that a message takes on a good day, in seconds."""
    lost: float = 0.0
    repeated: float = 0.0
    """A request is carried out, its answer is lost, and the driver sends it again by itself."""
    late: float = 0.0
    latest: float = 6.0
    """How long a late message takes at most: longer than anybody waits for an answer."""
    deaf: float = 0.0
    """The chance that a notice is lost."""


FAIR = Weather()


class Server(Protocol):
    """Something on a machine that answers requests."""

    machine: Machine
    repeatable: frozenset[type]
    """Requests that a driver may send again by itself, because a second time changes nothing."""

    def handle(self, request: Any, sender: Any, answer: Callable[[Any], None]) -> None:
        """Carry a request out, and pass the answer on when it may be known."""


class Exchange(SimulatedSignal):
    """One request on its way, and what became of it."""

    __slots__ = ("outcome", "problem", "reply")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.reply: Any = None
        self.problem = ""
        self.outcome: Outcome = "unknown"

    def answered(self, reply: Any) -> None:
        if not self._flag:
            self.reply = reply
            self.set()

    def failed(self, problem: str, outcome: Outcome) -> None:
        if not self._flag:
            self.problem, self.outcome = problem, outcome
            self.set()


class Network:
    """Carries messages between machines."""

    def __init__(self, world: World, weather: Weather = FAIR) -> None:
        self.world, self.weather, self.usual = world, weather, weather
        self._cuts: dict[frozenset[str], int] = {}
        self._held: list[tuple[frozenset[str], Callable[[], None], Machine]] = []
        self.sent = 0

    # Faults

    def cut(self, one: str, other: str) -> None:
        """Nothing gets from one to the other any more, in either direction."""
        link = frozenset((one, other))
        self._cuts[link] = self._cuts.get(link, 0) + 1

    def heal(self, one: str, other: str) -> None:
        """Messages get through again, and some that were sent meanwhile arrive late: senders repeat themselves."""
        link = frozenset((one, other))
        if self._cuts.get(link, 0) > 1:
            self._cuts[link] -= 1
            return
        self._cuts.pop(link, None)
        held, self._held = self._held, []
        for of, arrive, machine in held:
            if of == link:
                self.later(arrive, machine)
            else:
                self._held.append((of, arrive, machine))

    def is_cut(self, one: str, other: str) -> bool:
        """Whether nothing gets from one to the other."""
        return frozenset((one, other)) in self._cuts

    @property
    def troubled(self) -> bool:
        """Whether it is cut somewhere, or behaves badly."""
        return bool(self._cuts) or self.weather is not self.usual

    # Messages

    def carry(self, sender: Machine, receiver: Machine, arrive: Callable[[], None], notice: bool = False) -> bool:
        """Send a message; False if it is lost."""
        world, weather = self.world, self.weather
        self.sent += 1
        chance = world.random.random
        if self._cuts:
            link = frozenset((sender.name, receiver.name))
            if link in self._cuts:
                if notice or chance() < 0.5:
                    return False
                self._held.append((link, arrive, receiver))
                return True
        delay = chance() * weather.delay
        if weather is not FAIR:
            if chance() < (weather.deaf if notice else weather.lost):
                return False
            if weather.late and chance() < weather.late:
                delay = chance() * weather.latest
        world.at(world.time + delay, arrive, receiver)
        return True

    def ask(self, machine: Machine, server: Server, sender: object, request: Any) -> Exchange:
        """Send a request to a server."""
        exchange = Exchange(self.world)
        if server.machine.dead:
            self.later(partial(exchange.failed, "connection refused", "not done"), machine)
            return exchange
        arrive: Callable[[], None] = partial(self._arrive, machine, server, sender, request, exchange)
        weather = self.weather
        if weather.repeated and type(request) in server.repeatable and self.world.random.random() < weather.repeated:
            arrive = partial(self._arrive_twice, server, sender, request, arrive)
        if not self.carry(machine, server.machine, arrive):
            self._reset(exchange, machine)
        return exchange

    def _arrive(self, machine: Machine, server: Server, sender: object, request: Any, exchange: Exchange) -> None:
        server.handle(request, sender, partial(self._answer, server.machine, machine, exchange))

    def _arrive_twice(self, server: Server, sender: object, request: Any, again: Callable[[], None]) -> None:
        server.handle(request, sender, lambda _: None)
        self.later(again, server.machine)

    def _answer(self, server: Machine, machine: Machine, exchange: Exchange, reply: Any) -> None:
        if not self.carry(server, machine, partial(exchange.answered, reply)):
            self._reset(exchange, machine)

    def _reset(self, exchange: Exchange, machine: Machine) -> None:
        """Whoever asked may hear that the connection is gone, or nothing at all."""
        if self.world.random.random() < 0.5:
            self.later(partial(exchange.failed, "the connection was lost", "unknown"), machine)

    def later(self, do: Callable[[], None], machine: Machine) -> None:
        """Let something happen on a machine after the time that a message takes."""
        self.world.at(self.world.time + self.world.random.random() * self.weather.delay, do, machine)


class NetworkIo(SimulatedIo):
    """Awaits in virtual time, on a machine of its own, with a server across the network."""

    def __init__(self, network: Network, machine: Machine, server: Server, sender: object = None) -> None:
        super().__init__(network.world, self)
        self.network, self.machine, self.server, self.sender = network, machine, server, sender

    def now(self) -> float:
        return self.machine.now()

    async def call(self, request: Any, until: float) -> Any:
        exchange = self.network.ask(self.machine, self.server, self.sender, request)
        try:
            await suspend(Pause(self.machine.moment(until), exchange))
        finally:
            exchange.task = None
        if not exchange.is_set():
            raise EngineFailure(self.server.machine.name, "no answer in time", "unknown")
        if exchange.problem:
            raise EngineFailure(self.server.machine.name, exchange.problem, exchange.outcome)
        return exchange.reply

    async def wait(self, signal: Any, until: float | None) -> bool:
        return await super().wait(signal, None if until is None else self.machine.moment(until))
