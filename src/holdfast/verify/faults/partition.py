"""Servers that are cut off from each other, while clients still reach both sides."""

from __future__ import annotations

from holdfast.verify.faults.fault import Fault, Scene, Strike
from holdfast.verify.target import Target


class Partition(Fault):
    """A minority, or the leader alone, is cut off: by network namespaces, or for all clients by their proxies."""

    name = what = "partition"
    side = "server"
    needs = frozenset({"network"})

    def refusal(self, target: Target) -> str:
        if len(target.servers) < 2:
            return "there is one server, and nobody to cut it off from"
        if target.network is None:
            return target.refused.get("network", "the target has no network of its own")
        return ""

    def begin(self, scene: Scene) -> Strike | None:
        target, network = scene.target, scene.target.network
        if network is None or id(network) in scene.taken:
            return None
        leader = target.leader() if scene.rng.random() < 0.6 else None
        side = [leader] if leader is not None else scene.rng.sample(target.servers, max(1, target.spare))
        network.cut_off(side)
        numbers = [target.servers.index(server) + 1 for server in side]
        victim = ", ".join(f"{server.name}-{number}" for server, number in zip(side, numbers, strict=True))
        return Strike(victim, network.heal, [network], {"leader": True} if leader is not None else {})
