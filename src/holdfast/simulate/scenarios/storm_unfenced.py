"""The storm on a resource without a fence: from some seeds an update is lost."""

from __future__ import annotations

import random
from dataclasses import replace

from holdfast.simulate.acts import Act, Stop
from holdfast.simulate.scenario import Plot, Scenario
from holdfast.simulate.scenarios import storm
from holdfast.verify.checkers.updates import UNFENCED


def plot(chance: random.Random) -> Plot:
    """The storm, and everybody is stopped once for longer than the ttl."""
    found = storm.plot("unfenced", chance)
    stops = [Stop(round(chance.uniform(0.0, 5.0), 3), who, 6.0) for who in storm.PEOPLE]
    acts: list[Act] = sorted([*found.acts, *stops], key=lambda act: act.at)
    return replace(found, acts=tuple(acts))


SCENARIO = Scenario(
    "storm-unfenced",
    "Everything at once, without a fence",
    "The same storm, with a resource that takes every write. Some holders do not look at their grants before they "
    "write, and from some seeds an update is lost. This has to go wrong: run it from many.",
    plot,
    breaks=UNFENCED,
    always=False,
)
