"""The storm on a cluster of lock servers: everything at once, to clients, servers and etcd."""

from __future__ import annotations

import random
from collections.abc import Callable

from holdfast.simulate.acts import Act, Blow, BreakLock, Crash, Cut, Stop
from holdfast.simulate.cluster_acts import CutLeader
from holdfast.simulate.etcd import NODES
from holdfast.simulate.lock_cluster import SERVERS, ClusterWorld
from holdfast.simulate.network import Weather
from holdfast.simulate.scenario import Plot, Scenario
from holdfast.simulate.scenarios import storm
from holdfast.simulate.scenarios.cluster_takeover import TTL

BEGINS = 2.0
"""By then somebody leads."""


def later(act: Act) -> Act:
    """The same act of the other storm, when somebody leads."""
    object.__setattr__(act, "at", round(act.at + BEGINS, 3))
    return act


def a_fault(chance: random.Random) -> Act:
    """Something goes wrong with a server or with etcd for a while."""
    at = round(chance.uniform(BEGINS, BEGINS + 6.0), 3)
    seconds = round(chance.choice((0.5, 2.0, 6.0, 12.0)) * chance.uniform(0.5, 1.5), 3)
    server, (node, other) = chance.choice(SERVERS), chance.sample(NODES, 2)
    faults: tuple[Callable[[], Act], ...] = (
        lambda: Crash(at, seconds),
        lambda: CutLeader(at, seconds),
        lambda: Stop(at, server, seconds),
        lambda: Stop(at, node, seconds),
        lambda: Cut(at, server, seconds, node),
        lambda: Cut(at, node, seconds, other),
        lambda: Cut(at, chance.choice(storm.PEOPLE), seconds, server),
        lambda: Blow(at, seconds, Weather(lost=0.1, late=0.1)),
        lambda: BreakLock(at, "k"),
    )
    return chance.choice(faults)()


def plot(chance: random.Random) -> Plot:
    uses: list[Act] = [later(storm.a_use(chance, "fenced")) for _ in range(chance.randint(4, 9))]
    faults = [a_fault(chance) for _ in range(chance.randint(1, 4))]
    rates = {who: 1 + chance.uniform(-0.004, 0.004) for who in (*SERVERS, *NODES)} if chance.random() < 0.3 else {}
    return Plot(tuple(sorted([*uses, *faults], key=lambda act: act.at)), ttl=TTL, rates=rates, world=ClusterWorld)


SCENARIO = Scenario(
    "cluster-storm",
    "Everything at once, on a cluster of lock servers",
    "Servers and nodes of etcd are stopped, lose their power and are cut off from each other, while the network loses "
    "and delays. Run it from many seeds.",
    plot,
)
