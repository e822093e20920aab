"""The storm on the lock server: everything at once, on the real server and its wire."""

from __future__ import annotations

import random
from dataclasses import replace

from holdfast.simulate.lock_server import ServerWorld
from holdfast.simulate.scenario import Plot, Scenario
from holdfast.simulate.scenarios import storm


def plot(chance: random.Random) -> Plot:
    return replace(storm.plot("fenced", chance), world=ServerWorld)


SCENARIO = Scenario(
    "server-storm",
    "Everything at once, on the lock server",
    "The storm with the real server: its commands, batches and records, and clients that speak its wire over "
    "connections which break. Run it from many seeds.",
    plot,
)
