"""A client whose time of day is set while it works, as by an operator or a time server."""

from __future__ import annotations

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

    def begin(self, scene: Scene) -> Strike | None:
        member = scene.client()
        if member is None:
            return None
        by = scene.rng.choice((JUMP, -JUMP))
        member.say(f"jump {by}")
        return Strike(member.name, lambda: member.say("jump 0"), [member], {"by": by})
