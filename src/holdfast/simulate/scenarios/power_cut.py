"""Power cuts: the lock manager loses its memory, and what its disk had not synced. Nothing was answered before."""

from __future__ import annotations

import random

from holdfast.simulate.acts import Act, Crash, Use
from holdfast.simulate.scenario import Plot, Scenario
from holdfast.simulate.table_server import Disk, TableServer


def plot_with(manager_class: type[TableServer], chance: random.Random) -> Plot:
    """Three take turns while the power fails again and again."""
    uses: list[Act] = [
        Use(round(0.13 * number, 2), "ABC"[number % 3], "account", 0.02, 5.0, writes="fenced") for number in range(24)
    ]
    crashes: list[Act] = [Crash(round(chance.uniform(0.1, 3.0), 4), 0.05) for _ in range(6)]
    acts = tuple(sorted([*uses, *crashes], key=lambda act: act.at))
    return Plot(acts, ttl=4.0, disk=Disk(sync=0.03), manager_class=manager_class)


def plot(chance: random.Random) -> Plot:
    return plot_with(TableServer, chance)


SCENARIO = Scenario(
    "power-cut",
    "The lock manager loses its power, six times",
    "Its disk forgets what was not synced, and it comes back with the rest. It answers nothing before it is synced, "
    "so no grant, no place in line and no token that anybody has heard of is forgotten.",
    plot,
    shows=("crashed", "restarted", "written"),
)
