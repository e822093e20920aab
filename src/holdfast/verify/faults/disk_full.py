"""A disk without room."""

from __future__ import annotations

from holdfast.verify.faults.fault import Fault, Scene, Strike
from holdfast.verify.target import Target


class DiskFull(Fault):
    """Everything that is left of the first server's disk is taken, and given back later."""

    name = what = "disk-full"
    side = "server"
    needs = frozenset({"disk"})

    def refusal(self, target: Target) -> str:
        if not target.disk_size:
            return "nothing of this target lies on a disk that the verifier could fill"
        return "" if target.disk is not None else target.refused.get("disk", "the target has no disk of its own")

    def begin(self, scene: Scene) -> Strike | None:
        disk = scene.target.disk
        servers = scene.target.servers[:1]
        if disk is None or id(disk) in scene.taken or any(id(server) in scene.taken for server in servers):
            return None
        disk.fill()

        def make_room() -> None:
            disk.make_room()
            for server in servers:
                server.relaunch()

        return Strike(f"{servers[0].name}-1" if servers else "disk", make_room, [disk, *servers])
