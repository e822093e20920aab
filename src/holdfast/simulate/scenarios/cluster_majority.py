"""A replicated lock server loses a majority of what it stands on: nobody gets a lock, and nobody is told a lie."""

from __future__ import annotations

from functools import partial

from holdfast.simulate.scenario import Scenario
from holdfast.simulate.scenarios.cluster_minority import plot_with

SCENARIO = Scenario(
    "cluster-majority",
    "Two of three nodes of etcd stop",
    "The same with two nodes stopped. Nothing can be kept, so nothing is granted; the leader stops answering when its "
    "lease is over on its own clock. When the nodes are back a server leads again, with all that was answered.",
    partial(plot_with, 2),
    shows=("stopped", "deposed", "leads", "written"),
)
