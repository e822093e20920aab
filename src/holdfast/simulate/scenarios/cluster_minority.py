"""A replicated lock server loses a minority of what it stands on, and goes on."""

from __future__ import annotations

import random

from holdfast.simulate.acts import Act, Stop
from holdfast.simulate.etcd import NODES
from holdfast.simulate.scenario import Plot, Scenario
from holdfast.simulate.scenarios.cluster_takeover import told, uses


def plot_with(lost: int, chance: random.Random) -> Plot:
    """Some nodes of etcd stop for longer than the leader's lease."""
    at = round(chance.uniform(4.0, 5.0), 2)
    stops: list[Act] = [Stop(at, node, 10.0) for node in sorted(chance.sample(NODES, lost))]
    return told([*uses(chance, 2.0, 12, 1.0), *stops, *uses(chance, 30.0, 3, 0.5)])


def plot(chance: random.Random) -> Plot:
    return plot_with(1, chance)


SCENARIO = Scenario(
    "cluster-minority",
    "One of three nodes of etcd stops",
    "The lock servers keep their state in etcd, of which one node stops for ten seconds. The other two are a majority: "
    "if it was the one that led, they elect another within two seconds; locks are given and taken as before.",
    plot,
    shows=("stopped", "granted", "written"),
)
