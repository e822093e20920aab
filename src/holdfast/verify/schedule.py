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


def plan(
    faults: Sequence[Fault], seconds: float, ttl: float, rng: random.Random, lease: float | None = None
) -> list[Appointment]:
    """Every fault once by itself, in an order of the seed's, then mixed. A short run has time for the mixture only.

    What happens to a client outlives its ttl, and what happens to a server the lease between servers, if there is one.
    """
    times = Times(ttl, lease or ttl)
    if not faults:
        return []
    order = rng.sample(list(faults), len(faults))
    alone = _one_by_one(order, times, rng)
    last = alone[-1].at + alone[-1].length
    if last > seconds * ALONE:
        # There is no time to lose: what lasts longest begins first.
        fates = sorted(_fates(order, times, rng), key=lambda fate: fate[1], reverse=True)
        return _mixed(fates, 0.0, seconds, times, rng)
    more = int((seconds - last) / times.shortest)
    fates = _fates([rng.choice(order) for _ in range(more)], times, rng)
    return alone + _mixed(fates, last, seconds, times, rng)


@dataclass(frozen=True)
class Times:
    """By which each side measures: clients by their ttl, servers by their lease."""

    ttl: float
    lease: float

    @property
    def shortest(self) -> float:
        return min(self.ttl, self.lease)

    def of(self, fault: Fault) -> float:
        """What a fault has to outlast."""
        return self.ttl if fault.side == "client" else self.lease


def _one_by_one(order: Sequence[Fault], times: Times, rng: random.Random) -> list[Appointment]:
    made, at = [], times.shortest / 4
    for fault in order:
        length = fault.length(times.of(fault), rng)
        made.append(Appointment(at, fault, length))
        at += length + rng.uniform(0.3, 0.8) * times.shortest
    return made


def _fates(order: Sequence[Fault], times: Times, rng: random.Random) -> list[tuple[Fault, float]]:
    """Each fault, and for how long."""
    return [(fault, fault.length(times.of(fault), rng)) for fault in order]


def _mixed(
    fates: Sequence[tuple[Fault, float]], start: float, end: float, times: Times, rng: random.Random
) -> list[Appointment]:
    """Spread over the time, with room at the end for one that outlasts a ttl."""
    if not fates:
        return []
    step = max(0.0, end - start - times.shortest) / len(fates)
    return [
        Appointment(start + number * step + rng.uniform(0.0, step), fault, length)
        for number, (fault, length) in enumerate(fates)
    ]
