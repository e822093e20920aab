"""One simulated world: a lock manager, a resource, a network between them, and the processes that use them."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from holdfast.core.table import Dictionary
from holdfast.core.table.commands import Command, Notice
from holdfast.engines.engine import Deliver, Verbs, nobody
from holdfast.engines.memory import GUARANTEES
from holdfast.engines.table_verbs import TableVerbs
from holdfast.locks.client import Client
from holdfast.runtime.simulated import Machine, Pause, Task, World, suspend
from holdfast.simulate.chronicle import Chronicle
from holdfast.simulate.network import FAIR, Network, NetworkIo, Weather
from holdfast.simulate.resource import Resource
from holdfast.simulate.table_server import Answer, Disk, TableServer

MANAGER, RESOURCE = "manager", "resource"


class TableEngine:
    """One process's way to the lock table across the network."""

    schemes = ("simulated",)
    options = frozenset[str]()
    guarantees = GUARANTEES
    shortest_ttl = 0.1
    address = "simulated://"

    def __init__(self, simulation: Simulation, machine: Machine) -> None:
        self.simulation, self.machine = simulation, machine
        self.receive: Deliver = nobody

    @property
    def deliver(self) -> Deliver:
        """Where notices go. The network asks for it when one arrives, on this machine."""
        return self._hear

    @deliver.setter
    def deliver(self, deliver: Deliver) -> None:
        self.receive = deliver

    def _hear(self, notice: Notice) -> None:
        self.receive(notice)

    def verbs(self) -> Verbs:
        io = NetworkIo(self.simulation.network, self.machine, self.simulation.table, self)
        return TableVerbs(io, io.signal())

    def abandon(self) -> None:
        """Nothing forks here."""

    def close(self) -> None:
        """Nothing is open."""


class Person:
    """A process with a client: it can be stopped, cut off and killed as a whole."""

    def __init__(self, simulation: Simulation, name: str, ttl: float, rate: float) -> None:
        self.simulation, self.name = simulation, name
        self.machine = Machine(simulation.world, name, rate)
        self.tasks: list[Task] = []
        engine, numbers = simulation.engine(self.machine), iter(range(1, 1_000_000))
        self.client = Client(
            engine,
            engine.verbs,
            engine.verbs,
            lambda work: simulation.world.spawn(f"{name}'s keeper", work, self.machine),
            ttl=ttl,
            namespace="holdfast",
            app=name,
            session_id=lambda: simulation.session_id(name, next(numbers)),
        )
        # What a message says of it must not depend on where the simulation runs.
        self.client.host, self.client.pid = name, 1
        self.resource = NetworkIo(simulation.network, self.machine, simulation.resource)

    def start(self, work: Coroutine[Any, Any, None]) -> Task:
        """Start something that this process does."""
        task = self.simulation.world.spawn(self.name, work, self.machine)
        self.tasks.append(task)
        return task

    async def sleep(self, seconds: float) -> None:
        """Do nothing for a while, by this process's own clock."""
        await suspend(Pause(self.machine.moment(self.machine.now() + seconds)))


class Manager(Protocol):
    """Where the lock state lives, as the acts and the judge see it."""

    queued: dict[str, float]
    """By claim: when it was given a place in line."""

    @property
    def machine(self) -> Machine: ...

    @property
    def rows(self) -> Dictionary: ...

    @property
    def unsynced(self) -> int: ...

    def now(self) -> float: ...

    def handle(self, request: Command, sender: Any, answer: Answer) -> None: ...

    def crash(self) -> None: ...

    def restart(self) -> None: ...


class Simulation:
    """Everything that is simulated, from one seed."""

    manager_class: type[Any] = TableServer
    manager: Manager

    def __init__(
        self,
        seed: int,
        *,
        ttl: float = 10.0,
        weather: Weather | None = None,
        disk: Disk | None = None,
        rates: dict[str, float] | None = None,
        manager_class: type[Any] | None = None,
        told: bool = True,
    ) -> None:
        self.seed, self.ttl, self.rates = seed, ttl, rates or {}
        self.world = World(seed, start=0.0)
        self.chronicle = Chronicle(self.world, told)
        self.network = Network(self.world, weather or FAIR)
        self.machines: dict[str, Machine] = {}
        self.build(disk, manager_class or self.manager_class)
        self.resource = Resource(Machine(self.world, RESOURCE))
        self.people: dict[str, Person] = {}
        self.used: set[tuple[str, str]] = set()
        """Kinds and names that anybody asked for."""

    def build(self, disk: Disk | None, manager_class: type[Any]) -> None:
        """Set up where the lock state lives."""
        machine = self.machines[MANAGER] = Machine(self.world, MANAGER, self.rates.get(MANAGER, 1.0))
        self.manager = self.table = manager_class(self.network, machine, disk)

    def engine(self, machine: Machine) -> Any:
        """A process's way to it."""
        return TableEngine(self, machine)

    def session_id(self, who: str, number: int) -> str:
        """What a process calls its sessions."""
        return f"{who}.{number}"

    def queued(self, claim_id: str) -> float | None:
        """When a claim was given its place in line, if it ever was."""
        return self.manager.queued.get(claim_id)

    def left_behind(self) -> list[tuple[str, str, list[str], list[str]]]:
        """What is still alive in the lock manager: kind, name, holders and waiters.

        What has died is not counted: it blocks nobody, and goes with the next step of anybody.
        """
        left: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
        rows, now = self.manager.rows, self.manager.now()
        for row in rows.rows.values():
            if rows.alive(row, now):
                key = (row.claim.kind.partition(".")[2], row.claim.name)
                left.setdefault(key, ([], []))[row.token is None].append(row.claim.owner)
        return [(kind, name, holders, waiters) for (kind, name), (holders, waiters) in sorted(left.items())]

    def troubled(self) -> bool:
        """Whether some fault is not over yet."""
        machines = [*self.machines.values(), *(person.machine for person in self.people.values())]
        down = any(machine.dead for machine in self.machines.values())
        return down or self.network.troubled or any(machine.asleep and not machine.dead for machine in machines)

    def person(self, name: str) -> Person:
        """The process of this name, started when it is first needed."""
        found = self.people.get(name)
        if found is None:
            found = self.people[name] = Person(self, name, self.ttl, self.rates.get(name, 1.0))
        return found

    def close(self) -> None:
        """End the world."""
        self.world.end()


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings of lost grants and leaders out of the way: in a simulation that is what is looked for."""
    logs = [logging.getLogger(name) for name in ("holdfast", "holdfast.server")]
    before = [log.disabled for log in logs]
    for log in logs:
        log.disabled = True
    try:
        yield
    finally:
        for log, disabled in zip(logs, before, strict=True):
            log.disabled = disabled
