"""The storm on Redlock: five nodes that stop and come back empty, and a network that loses, for its recipe."""

from __future__ import annotations

import random
from collections.abc import Callable

from holdfast.simulate.acts import Act, Blow, Cancel, Cut, Kill, Stop, Use
from holdfast.simulate.network import Weather
from holdfast.simulate.redlock import NODES, RedlockWorld
from holdfast.simulate.scenario import Plot, Scenario

PEOPLE = ("A", "B", "C")


def a_fault(chance: random.Random) -> Act:
    """Something goes wrong for a while: never with the memory of a node, which Redlock rests on."""
    at, who, node = round(chance.uniform(0.0, 6.0), 3), chance.choice(PEOPLE), chance.choice(NODES)
    seconds = round(chance.choice((0.2, 1.0, 3.0, 6.0)) * chance.uniform(0.5, 1.5), 3)
    faults: tuple[Callable[[], Act], ...] = (
        lambda: Stop(at, who, seconds),
        lambda: Stop(at, node, seconds),
        lambda: Stop(at, node, seconds),
        lambda: Cut(at, who, seconds, node),
        lambda: Cut(at, who, seconds, node),
        lambda: Kill(at, who),
        lambda: Cancel(at, who),
        lambda: Blow(at, seconds, Weather(lost=0.2)),
        lambda: Blow(at, seconds, Weather(late=0.2)),
    )
    return chance.choice(faults)()


def plot(chance: random.Random) -> Plot:
    uses: list[Act] = [
        Use(
            round(chance.uniform(0.0, 6.0), 3),
            chance.choice(PEOPLE),
            "k",
            round(chance.choice((0.01, 0.1, 0.5, 2.0, 6.0)) * chance.uniform(0.5, 1.5), 3),
            chance.choice((None, None, 0, 0.5, 3.0)),
            "fenced",
            checks=chance.random() < 0.5,
        )
        for _ in range(chance.randint(3, 7))
    ]
    faults = [a_fault(chance) for _ in range(chance.randint(0, 5))]
    acts: list[Act] = sorted([*uses, *faults], key=lambda act: act.at)
    return Plot(tuple(acts), ttl=4.0, world=RedlockWorld)


SCENARIO = Scenario(
    "redlock-storm",
    "Everything at once, on five nodes",
    "Redlock's recipe while nodes and processes are stopped, cut off and killed, and the network loses and delays. "
    "Clocks run alike and nodes keep their memory here, which is what Redlock rests on. Run it from many seeds.",
    plot,
)
