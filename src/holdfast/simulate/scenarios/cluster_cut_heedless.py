"""A lock server that goes on answering when its lease is over: two hold one lock. A control."""

from __future__ import annotations

import random

from holdfast.server.cluster.membership import Member, Membership
from holdfast.server.cluster.node import Node
from holdfast.simulate.lock_cluster import ClusterServer
from holdfast.simulate.scenario import Plot, Scenario
from holdfast.simulate.scenarios import cluster_cut


class Endless(Membership):
    """Takes a lease for one that has no end."""

    alive = True


class Heedless(ClusterServer):
    """Does not look at the clock: it leads until etcd tells it otherwise, which etcd cannot while it is cut off."""

    def take_part(self, member: Member) -> Node:
        node = super().take_part(member)
        node.membership = Endless(node.etcd, node.keys, member, self.cluster.lease)
        return node


def plot(chance: random.Random) -> Plot:
    return cluster_cut.plot_with(Heedless, chance)


SCENARIO = Scenario(
    "cluster-cut-heedless",
    "The same with a server that goes on answering",
    "A's heartbeats are answered by a server that leads no more. The one that leads hears nothing of A, lets its "
    "session run out, and gives the lock to B: two hold it. (Unless B asks the wrong one first, which then waits "
    "for etcd with all its answers: A goes to the other.)",
    plot,
    breaks="exclusion",
    always=False,
    shows=("cut", "leads"),
)
