"""The same set without a fence: the control that loses updates when a client is paused."""

from __future__ import annotations

from holdfast.verify.workloads.protected import Protected


class Unfenced(Protected):
    """What most programs do: they hold a lock, and believe that nobody else can write."""

    name = "unfenced"
    names = (("lock", "verify/unfenced/a"),)
    fenced = False
    breaks = "unfenced updates"

    def thinking(self) -> float:
        return self.actor.rng.uniform(0.1, 0.3) * self.actor.ttl
