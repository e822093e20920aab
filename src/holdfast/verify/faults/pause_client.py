"""A client that is stopped and goes on later, as after a long collection or in a paused machine."""

from __future__ import annotations

import random
import signal

from holdfast.verify.faults.fault import Fault, Scene, Strike
from holdfast.verify.target import Target


class PauseClient(Fault):
    """SIGSTOP past the ttl: what it holds is somebody else's when it wakes, and it does not know it yet."""

    name = "pause-client"
    what = "pause"
    side = "client"

    def refusal(self, target: Target) -> str:
        return ""

    def length(self, ttl: float, rng: random.Random) -> float:
        return rng.uniform(1.3, 1.8) * ttl

    def begin(self, scene: Scene) -> Strike | None:
        member = scene.stop_client()
        if member is None:
            return None
        return Strike(member.name, lambda: member.send(signal.SIGCONT), [member])
