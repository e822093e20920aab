"""A scenario: a plot that a seed makes, what it shows, and how it is run to its end."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import InvalidRequest
from holdfast.simulate.acts import Act, running
from holdfast.simulate.network import FAIR, Weather
from holdfast.simulate.simulation import Simulation, quiet
from holdfast.simulate.table_server import Disk
from holdfast.verify.history import History, Run

SETTLES = 16.0
"""For how many seconds, beyond two ttls, things may take to go on: a waiter that missed its notice looks within 12."""


@dataclass(frozen=True, slots=True)
class Plot:
    """What happens, and in which world."""

    acts: tuple[Act, ...]
    ttl: float = 10.0
    weather: Weather = FAIR
    disk: Disk | None = None
    rates: dict[str, float] = field(default_factory=dict)
    """How fast clocks run; 1 unless told."""
    world: type[Simulation] = Simulation
    manager_class: type[Any] | None = None
    """The lock manager, if it is another one than that of the world."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A story that can be told from any seed."""

    name: str
    title: str
    about: str
    """What it shows, in a few sentences."""
    plot: Callable[[random.Random], Plot]
    breaks: str = ""
    """The claim that it has to break: a control. Empty if every claim has to be kept."""
    always: bool = True
    """Whether a control breaks it from every seed, or from some only."""
    shows: tuple[str, ...] = ()
    """Events that have to be in the story whenever it is told in full; otherwise it shows nothing."""


@dataclass(frozen=True, slots=True)
class Told:
    """A run that has come to its end."""

    scenario: Scenario
    seed: int
    acts: tuple[Act, ...]
    kept: tuple[int, ...]
    """Which acts of the plot were performed."""
    history: History
    simulation: Simulation


def plot_of(scenario: Scenario, seed: int) -> Plot:
    """The plot that a seed makes."""
    # Another stream than the world's, so that leaving acts out changes as little as possible.
    return scenario.plot(random.Random(f"{scenario.name} {seed}"))


def command(scenario: Scenario, seed: int, kept: Sequence[int] | None = None) -> str:
    """The line that runs it again."""
    line = f"holdfast simulate {scenario.name} --seed {seed}"
    return line if kept is None else f"{line} --keep {','.join(map(str, kept)) or 'none'}"


def play(
    scenario: Scenario,
    seed: int,
    *,
    keep: Sequence[int] | None = None,
    told: bool = True,
    manager_class: type[Any] | None = None,
) -> Told:
    """Run a scenario from one seed to its end; only the acts in `keep`, if given."""
    plot = plot_of(scenario, seed)
    every = range(len(plot.acts))
    chosen = tuple(every if keep is None else sorted(set(keep)))
    unknown = [number for number in chosen if number not in every]
    if unknown:
        # A story without its acts would be one in which nothing goes wrong.
        raise InvalidRequest("keep", unknown[0], f"the acts of this seed are 0 to {len(every) - 1}")
    with quiet():
        simulation = plot.world(
            seed,
            ttl=plot.ttl,
            weather=plot.weather,
            disk=plot.disk,
            rates=plot.rates,
            manager_class=manager_class or plot.manager_class,
            told=told,
        )
        simulation.chronicle.run(
            Run("simulated", scenario.name, seed, command(scenario, seed, keep), plot.ttl, control=scenario.breaks)
        )
        try:
            for number in chosen:
                act = plot.acts[number]
                simulation.world.at(act.at, _performs(simulation, act, number))
            _to_the_end(simulation, max((plot.acts[number].at for number in chosen), default=0.0))
        finally:
            simulation.close()
    acts = tuple(plot.acts[number] for number in chosen)
    return Told(scenario, seed, acts, chosen, simulation.chronicle.history(), simulation)


def _performs(simulation: Simulation, act: Act, number: int) -> Callable[[], None]:
    return lambda: act.perform(simulation, number)


def _to_the_end(simulation: Simulation, last: float) -> None:
    """Let all acts happen, let everything heal, and wait until it has settled."""
    world, chronicle = simulation.world, simulation.chronicle
    world.run(last)
    # Faults end by themselves; whatever is over is put right here too.
    while simulation.troubled() and world.time < last + 120.0:
        world.run(world.time + 0.25)
    within = 2 * simulation.ttl + SETTLES
    chronicle.note("heal", within=within)
    healed = world.time
    while running(simulation) and world.time < healed + 2 * within:
        world.run(world.time + 0.25)
    # The sessions of the dead have to run out; the living keep theirs, so that what they left behind is seen.
    world.run(world.time + simulation.ttl + 5.0)
    chronicle.note("end")
    left = {(kind, name): (holders, waiters) for kind, name, holders, waiters in simulation.left_behind()}
    for kind, name in sorted({*simulation.used, *left}):
        holders, waiters = left.get((kind, name), ([], []))
        call = chronicle.begin("inspect", "operator", name=name, kind=kind)
        chronicle.end(call, "ok", value={"holders": holders, "waiters": waiters})
        if holders or waiters:
            chronicle.tell("operator", "left", f"finds {name!r} still in use: held by {holders}, awaited by {waiters}")
