"""The same power cuts with a lock server that answers before the commit: two hold one lock."""

from __future__ import annotations

import random

from holdfast.server.batches import Batches
from holdfast.simulate.lock_server import LockServer, WatchedService
from holdfast.simulate.scenario import Plot, Scenario
from holdfast.simulate.scenarios.server_crash import plot_with


class HastyBatches(Batches):
    """Lets replies out at the end of a turn, whatever the store says."""

    def _go_on(self) -> None:
        self.let_out(*self.take())
        super()._go_on()


class Hasty(LockServer):
    """Answers before its store has it."""

    def serve(self) -> WatchedService:
        service = super().serve()
        before = service.batches
        service.batches = HastyBatches(
            self.store, self.loop.loop, service.tally, before._end_turn, before._told, before._refused, before._broken
        )
        return service


def plot(chance: random.Random) -> Plot:
    return plot_with(Hasty, chance)


SCENARIO = Scenario(
    "server-crash-hasty",
    "A lock server that answers before its disk does",
    "The same, but it answers first and commits later. After a power cut it does not know what it has granted, and "
    "grants it once more. This has to go wrong, from some seeds at least: run it from many.",
    plot,
    breaks="exclusion",
    always=False,
    shows=("crashed", "restarted"),
)
