"""Servers that are cut off from each other."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.verify.faults.fault import Fault, Scene, Strike, Undo
from holdfast.verify.faults.wires import heal
from holdfast.verify.servers.process import Server
from holdfast.verify.target import Target


class Partition(Fault):
    """A minority, or the leader alone, is cut off from the other servers, while clients still reach both sides.

    By network namespaces. Where those are not allowed, and where servers do not speak with each other
    anyway, clients are cut off from that side instead: by its namespaces, or by the proxies before them.
    """

    name = what = "partition"
    side = "server"
    needs = frozenset({"network"})

    def refusal(self, target: Target) -> str:
        if len(target.servers) < 2:
            return "there is one server, and nobody to cut it off from"
        if target.network is None and len(target.addresses) < 2:
            return target.refused.get("network", "the target has no network of its own")
        return ""

    def begin(self, scene: Scene) -> Strike | None:
        target = scene.target
        if id(self) in scene.taken:
            return None
        leader = target.leader() if scene.rng.random() < 0.6 else None
        side = [leader] if leader is not None else scene.rng.sample(target.servers, max(1, target.spare))
        numbers = [target.servers.index(server) + 1 for server in side]
        victim = ", ".join(f"{server.name}-{number}" for server, number in zip(side, numbers, strict=True))
        details = {"leader": True} if leader is not None else {}
        if target.network is None or not target.talks:
            details["clients_only"] = True
        return Strike(victim, self._cut(scene, side), [self], details)

    def _cut(self, scene: Scene, side: Sequence[Server]) -> Undo:
        target = scene.target
        if target.network is not None:
            target.network.cut_off(side, from_clients=not target.talks)
            return target.network.heal
        return self._cut_clients(scene, [target.servers.index(server) for server in side])

    @staticmethod
    def _cut_clients(scene: Scene, places: Sequence[int]) -> Undo:
        members = [member for member in scene.crew.members if member.proxies]
        for member in members:
            for place in places:
                member.proxies[place].requests.set("stall")
                member.proxies[place].replies.set("stall")

        def undo() -> None:
            for member in members:
                heal(member)

        return undo
