"""The storm: everything at once, chosen by the seed. What a search for violations runs."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from holdfast.model import Mode
from holdfast.simulate.acts import Act, BreakLock, Cancel, Crash, Cut, Kill, Stop, Use, UseBoth
from holdfast.simulate.acts import Blow as Blows
from holdfast.simulate.network import Weather
from holdfast.simulate.scenario import Plot, Scenario
from holdfast.simulate.table_server import Disk

PEOPLE = ("A", "B", "C", "D")
TTL = 4.0


def a_use(chance: random.Random, writes: str) -> Use | UseBoth:
    """Somebody takes something: mostly the same lock, sometimes a permit, a subtree, the lead, or two at once."""
    at, who = round(chance.uniform(0.0, 6.0), 3), chance.choice(PEOPLE)
    seconds = round(chance.choice((0.01, 0.1, 0.5, 2.0, 6.0)) * chance.uniform(0.5, 1.5), 3)
    wait = chance.choice((None, None, None, 0, 0.5, 3.0))
    what = chance.random()
    if what < 0.55:
        return Use(at, who, "k", seconds, wait, writes, checks=chance.random() < 0.5)
    if what < 0.7:
        mode: Mode = chance.choice(("shared", "shared", "exclusive"))
        return Use(at, who, "r", seconds, wait, mode=mode)
    if what < 0.75:
        first, second = chance.sample(("k", "a", "b"), 2)
        return UseBoth(at, who, first, second, min(seconds, 1.0), wait)
    if what < 0.8:
        return Use(at, who, "e", seconds, wait, kind="election")
    if what < 0.88:
        return Use(at, who, "s", seconds, wait, kind="semaphore", limit=2)
    name, subtree = chance.choice((("t", True), ("t/1", False), ("t/1/2", False), ("t/1", True)))
    return Use(at, who, name, seconds, wait, subtree=subtree)


def a_fault(chance: random.Random) -> Act:
    """Something goes wrong for a while."""
    at, who = round(chance.uniform(0.0, 6.0), 3), chance.choice(PEOPLE)
    seconds = round(chance.choice((0.2, 1.0, 3.0, 6.0)) * chance.uniform(0.5, 1.5), 3)
    faults: tuple[Callable[[], Act], ...] = (
        lambda: Stop(at, who, seconds),
        lambda: Stop(at, "manager", seconds),
        lambda: Cut(at, who, seconds),
        lambda: Cut(at, who, seconds, "resource"),
        lambda: Kill(at, who),
        lambda: Crash(at, min(seconds, 2.0)),
        lambda: Cancel(at, who),
        lambda: Blows(at, seconds, Weather(lost=0.2, deaf=0.2)),
        lambda: Blows(at, seconds, Weather(late=0.2, repeated=0.2)),
        lambda: Blows(at, seconds, Weather(deaf=1.0)),
        lambda: BreakLock(at, "k"),
    )
    return chance.choice(faults)()


def plot(writes: str, chance: random.Random) -> Plot:
    uses: list[Act] = [a_use(chance, writes) for _ in range(chance.randint(4, 9))]
    faults = [a_fault(chance) for _ in range(chance.randint(0, 4))]
    rates = {who: 1 + chance.uniform(-0.004, 0.004) for who in PEOPLE} if chance.random() < 0.3 else {}
    acts = sorted([*uses, *faults], key=lambda act: act.at)
    return Plot(tuple(acts), ttl=TTL, disk=Disk(), rates=rates)


SCENARIO = Scenario(
    "storm",
    "Everything at once",
    "Locks, readers and writers, permits and subtrees, while processes are stopped, killed, cut off and cancelled, "
    "the lock manager crashes, and the network loses, repeats and delays. Run it from many seeds: --runs 10000.",
    partial(plot, "fenced"),
)
