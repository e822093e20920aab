"""A client that dies with everything that it holds, and a new one in its place."""

from __future__ import annotations

import random

from holdfast.verify.faults.fault import Fault, Scene, Strike
from holdfast.verify.target import Target


class KillClient(Fault):
    """kill -9. Its successor has its name and its work, and a session of its own."""

    name = "kill-client"
    what = "kill"
    side = "client"

    def refusal(self, target: Target) -> str:
        return ""

    def length(self, ttl: float, rng: random.Random) -> float:
        return rng.uniform(0.0, 0.5) * ttl

    def begin(self, scene: Scene) -> Strike | None:
        member = scene.client()
        if member is None:
            return None
        member.kill()
        scene.crew.board.clear(member.config.place)
        return Strike(member.name, member.start, [member])
