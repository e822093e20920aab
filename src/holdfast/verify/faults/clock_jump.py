"""A client whose time of day is set while it works, as by an operator or a time server."""

from __future__ import annotations

import random

from holdfast.verify.faults.fault import Fault, Scene, Strike
from holdfast.verify.target import Target

JUMP = 86_400
"""By how many seconds: more than any ttl."""


class ClockJump(Fault):
    """It jumps a day ahead or a day back, and returns later. Clocks that only count seconds go on as they did.

    In the client's own process, for everything that is written in Python: no protocol may rest on it.
    """

    name = "clock-jump"
    what = "clock"
    side = "client"

    def refusal(self, target: Target) -> str:
        return ""

    def length(self, ttl: float, rng: random.Random) -> float:
        # A ttl need not pass: what counted by the time of day has seen thousands of them at once.
        return rng.uniform(0.3, 1.0) * ttl

    def begin(self, scene: Scene) -> Strike | None:
        member = scene.client()
        if member is None:
            return None
        by = scene.rng.choice((JUMP, -JUMP))
        member.say(f"jump {by}")
        return Strike(member.name, lambda: member.say("jump 0"), [member], {"by": by})
