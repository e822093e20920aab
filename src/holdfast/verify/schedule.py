"""When which fault strikes, and for how long: drawn from the seed before anything begins."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.verify.faults.fault import Fault

ALONE = 0.6
"""Which part of a run is for faults that strike one at a time, if they fit into it."""


@dataclass(frozen=True)
class Appointment:
    """One fault at one moment, in seconds from the start of the run."""

    at: float
    fault: Fault
    length: float


def plan(faults: Sequence[Fault], seconds: float, ttl: float, rng: random.Random) -> list[Appointment]:
    """Every fault once by itself, in an order of the seed's, then mixed. A short run has time for the mixture only."""
    if not faults:
        return []
    order = rng.sample(list(faults), len(faults))
    alone = _one_by_one(order, ttl, rng)
    last = alone[-1].at + alone[-1].length
    if last > seconds * ALONE:
        return _mixed(order, 0.0, seconds, ttl, rng)
    more = int((seconds - last) / ttl)
    return alone + _mixed([rng.choice(order) for _ in range(more)], last, seconds, ttl, rng)


def _one_by_one(order: Sequence[Fault], ttl: float, rng: random.Random) -> list[Appointment]:
    made, at = [], ttl / 4
    for fault in order:
        length = fault.length(ttl, rng)
        made.append(Appointment(at, fault, length))
        at += length + rng.uniform(0.3, 0.8) * ttl
    return made


def _mixed(order: Sequence[Fault], start: float, end: float, ttl: float, rng: random.Random) -> list[Appointment]:
    """Spread over the time, with room at the end for what lasts longest."""
    if not order:
        return []
    step = max(0.0, end - start - ttl) / len(order)
    return [
        Appointment(start + number * step + rng.uniform(0.0, step), fault, fault.length(ttl, rng))
        for number, fault in enumerate(order)
    ]
