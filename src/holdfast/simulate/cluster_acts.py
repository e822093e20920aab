"""What is done to whichever lock server of a cluster leads."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.simulate.etcd import NODES
from holdfast.simulate.lock_cluster import ClusterWorld
from holdfast.simulate.simulation import Simulation


@dataclass(frozen=True, slots=True)
class CutLeader:
    """The server that leads is cut off from etcd for a while; clients still reach it."""

    at: float
    seconds: float

    def perform(self, simulation: Simulation, number: int) -> None:
        assert isinstance(simulation, ClusterWorld)
        network, chronicle = simulation.network, simulation.chronicle
        name = simulation.managers.leader.machine.name
        for node in NODES:
            network.cut(name, node)
        fault = chronicle.fault("cut", name, server="etcd")
        chronicle.tell(name, "cut", f"is cut off from etcd for {self.seconds:g} s")

        def heal() -> None:
            for node in NODES:
                network.heal(name, node)
            chronicle.undo(fault)
            chronicle.tell(name, "healed", "reaches etcd again")

        simulation.world.at(simulation.world.time + self.seconds, heal)
