"""The same power cuts with a lock manager that answers before the disk has it: tokens come again."""

from __future__ import annotations

import random

from holdfast.simulate.scenario import Plot, Scenario
from holdfast.simulate.scenarios.power_cut import plot_with
from holdfast.simulate.table_server import TableServer


class Hasty(TableServer):
    """Answers before the disk has it."""

    answers_early = True


def plot(chance: random.Random) -> Plot:
    return plot_with(Hasty, chance)


SCENARIO = Scenario(
    "power-cut-unsynced",
    "A lock manager that answers before its disk does",
    "The same, but it answers first and syncs later. After a power cut it gives out tokens that others have already. "
    "This has to go wrong, from some seeds at least: run it from many.",
    plot,
    breaks="tokens",
    always=False,
    shows=("crashed", "restarted"),
)
