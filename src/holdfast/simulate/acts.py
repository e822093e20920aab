"""What can happen in a scenario: what processes do, and what is done to them. Each act knows when it comes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Protocol

from holdfast.core.table.commands import Break
from holdfast.locks.owner import owner
from holdfast.model import Mode
from holdfast.runtime.simulated import Task
from holdfast.simulate.chronicle import Begun
from holdfast.simulate.network import Weather
from holdfast.simulate.simulation import MANAGER, Person, Simulation
from holdfast.simulate.worker import Worker, spec_of


class Act(Protocol):
    """Something that happens at a moment."""

    @property
    def at(self) -> float:
        """Seconds after the beginning."""

    def perform(self, simulation: Simulation, number: int) -> None:
        """Let it happen now; `number` is its place in the plot."""


@dataclass(frozen=True, slots=True)
class Use:
    """A process takes a lock, uses it for a while and gives it back."""

    at: float
    who: str
    name: str
    seconds: float = 0.05
    wait: float | None = None
    writes: str = ""
    """`fenced` or `unfenced`: reads the resource of that name, and writes it at the end."""
    checks: bool = True
    """Whether it looks at its grant before it writes."""
    kind: str = "lock"
    mode: Mode = "exclusive"
    limit: int = 0
    subtree: bool = False

    def perform(self, simulation: Simulation, number: int) -> None:
        person = simulation.person(self.who)
        if person.machine.dead:
            return
        spec = spec_of(self.kind, self.name, self.mode, self.limit, self.subtree)
        worker = Worker(person, number, spec, self.wait)
        person.start(worker.run(self.seconds, self.writes, self.checks))


@dataclass(frozen=True, slots=True)
class UseBoth:
    """A process takes one lock, then another under it."""

    at: float
    who: str
    first: str
    second: str
    seconds: float = 0.05
    wait: float | None = None

    def perform(self, simulation: Simulation, number: int) -> None:
        person = simulation.person(self.who)
        if not person.machine.dead:
            person.start(self.run(person, number))

    async def run(self, person: Person, number: int) -> None:
        """One inside the other."""
        outer = Worker(person, number, spec_of("lock", self.first, "exclusive", 0, False), self.wait)
        inner = Worker(person, number, spec_of("lock", self.second, "exclusive", 0, False), self.wait)
        with owner(outer.owner):
            if not await outer.take():
                return
            try:
                await outer.work(self.seconds)
                await inner.run(self.seconds, "")
            finally:
                await outer.give_back()


@dataclass(frozen=True, slots=True)
class Stop:
    """A process stops, as in a long collection or on a suspended machine, and goes on later."""

    at: float
    who: str
    seconds: float

    def perform(self, simulation: Simulation, number: int) -> None:
        machine = simulation.machines.get(self.who) or simulation.person(self.who).machine
        if machine.dead or machine.asleep:
            return
        machine.stop()
        simulation.chronicle.tell(self.who, "stopped", f"is stopped for {self.seconds:g} s", seconds=self.seconds)
        fault = simulation.chronicle.fault("pause", self.who)

        def go_on() -> None:
            if machine.asleep and not machine.dead:
                simulation.chronicle.undo(fault)
                simulation.chronicle.tell(self.who, "goes on", "goes on")
                machine.go_on()

        simulation.world.at(simulation.world.time + self.seconds, go_on)


@dataclass(frozen=True, slots=True)
class Kill:
    """A process ends without a word."""

    at: float
    who: str

    def perform(self, simulation: Simulation, number: int) -> None:
        machine = simulation.person(self.who).machine
        if not machine.dead:
            machine.die()
            simulation.chronicle.fault("kill", self.who)
            simulation.chronicle.tell(self.who, "killed", "is killed")


@dataclass(frozen=True, slots=True)
class Cut:
    """The network between a process and a server is cut for a while."""

    at: float
    who: str
    seconds: float
    server: str = MANAGER

    def perform(self, simulation: Simulation, number: int) -> None:
        network, chronicle = simulation.network, simulation.chronicle
        network.cut(self.who, self.server)
        fault = chronicle.fault("cut", self.who, server=self.server)
        chronicle.tell(self.who, "cut", f"is cut off from {self.server} for {self.seconds:g} s", server=self.server)

        def heal() -> None:
            network.heal(self.who, self.server)
            chronicle.undo(fault)
            chronicle.tell(self.who, "healed", f"reaches {self.server} again")

        simulation.world.at(simulation.world.time + self.seconds, heal)


@dataclass(frozen=True, slots=True)
class Blow:
    """The network behaves badly for a while, for everybody."""

    at: float
    seconds: float
    weather: Weather

    def perform(self, simulation: Simulation, number: int) -> None:
        network, chronicle, before = simulation.network, simulation.chronicle, simulation.network.weather
        network.weather = self.weather
        fault = chronicle.fault("weather", "network")
        told = [
            f"{share:.0%} of the {what}"
            for share, what in (
                (self.weather.lost, "messages are lost"),
                (self.weather.late, "messages come late"),
                (self.weather.repeated, "requests are carried out twice"),
                (self.weather.deaf, "notices are lost"),
            )
            if share
        ]
        chronicle.tell("network", "weather", f"for {self.seconds:g} s: {', '.join(told) or 'slow'}")

        def clear() -> None:
            network.weather = before
            chronicle.undo(fault)
            chronicle.tell("network", "clear", "is well again")

        simulation.world.at(simulation.world.time + self.seconds, clear)


@dataclass(frozen=True, slots=True)
class Crash:
    """The lock manager loses its power, and comes back with what its disk has kept."""

    at: float
    seconds: float

    def perform(self, simulation: Simulation, number: int) -> None:
        manager, chronicle = simulation.manager, simulation.chronicle
        if manager.machine.dead:
            return
        lost, name = manager.unsynced, manager.machine.name
        manager.crash()
        fault = chronicle.fault("restart", name)
        forgot = f"; its disk forgets {lost} changes" if lost else ""
        chronicle.tell(name, "crashed", f"loses its power for {self.seconds:g} s{forgot}")

        def restart() -> None:
            manager.restart()
            chronicle.undo(fault)
            chronicle.tell(name, "restarted", "is back")

        simulation.world.at(simulation.world.time + self.seconds, restart)


@dataclass(frozen=True, slots=True)
class Cancel:
    """Whatever a process waits for is cancelled."""

    at: float
    who: str

    def perform(self, simulation: Simulation, number: int) -> None:
        person = simulation.people.get(self.who)
        running = [task for task in person.tasks if not task.done] if person else []
        if running and person is not None and not person.machine.dead:
            simulation.chronicle.tell(self.who, "cancelled", "is told to stop what it does")
            simulation.world.cancel(running[0])


@dataclass(frozen=True, slots=True)
class BreakLock:
    """An operator breaks a lock."""

    at: float
    name: str
    force: bool = False

    def perform(self, simulation: Simulation, number: int) -> None:
        manager, chronicle = simulation.manager, simulation.chronicle
        if manager.machine.dead:
            return
        how = "by force" if self.force else "gently"
        chronicle.tell("operator", "breaks", f"breaks the lock {self.name!r} {how}", name=self.name)
        call = chronicle.begin("break", "operator", name=self.name, force=self.force)
        done = partial(self._broken, simulation, call)
        manager.handle(Break("holdfast.lock", self.name, self.force), None, done)

    def _broken(self, simulation: Simulation, call: Begun, reply: object) -> None:
        simulation.chronicle.end(call, "ok")


def running(simulation: Simulation) -> list[Task]:
    """What processes that are alive are still doing."""
    return [
        task
        for person in simulation.people.values()
        if not person.machine.dead
        for task in person.tasks
        if not task.done
    ]
