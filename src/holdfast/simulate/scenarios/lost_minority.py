"""A replicated manager loses a minority of its nodes, and goes on. The recipe is Redlock's."""

from __future__ import annotations

import random
from functools import partial

from holdfast.simulate.acts import Act, Stop, Use
from holdfast.simulate.redlock import NODES, RedlockWorld
from holdfast.simulate.scenario import Plot, Scenario


def plot(lost: int, chance: random.Random) -> Plot:
    """Three take turns; some nodes stop for eight seconds."""
    down = chance.sample(NODES, lost)
    at = round(chance.uniform(0.5, 1.0), 2)
    stops: list[Act] = [Stop(at, node, 8.0) for node in sorted(down)]
    uses: list[Act] = [
        Use(round(0.4 * number, 2), "ABC"[number % 3], "account", 0.1, 4.0, writes="fenced") for number in range(9)
    ]
    later: list[Act] = [Use(12.0 + at, "A", "account", 0.1, 4.0, writes="fenced")]
    acts = tuple(sorted([*uses, *stops, *later], key=lambda act: act.at))
    return Plot(acts, world=RedlockWorld, ttl=10.0)


SCENARIO = Scenario(
    "lost-minority",
    "Two of five nodes stop",
    "Redlock's recipe on five independent nodes, of which two stop for eight seconds. The other three are a majority: "
    "the lock is given and taken as before. (The recipe is the real one; the nodes are models of its scripts.)",
    partial(plot, 2),
    shows=("stopped", "granted", "written"),
)
