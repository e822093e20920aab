"""Mutual exclusion through the API: take a lock, look at the grant, give it back."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from holdfast.verify.workloads.workload import Workload


class Mutex(Workload):
    """Few names, so that there is always somebody in line."""

    name = "mutex"
    names: ClassVar[tuple[tuple[str, str], ...]] = (("lock", "verify/mutex/a"), ("lock", "verify/mutex/b"))

    async def turn(self) -> bool:
        actor, rng = self.actor, self.actor.rng
        _, name = rng.choice(self.names)
        held = await actor.acquire(partial(actor.client.lock, self.lock_name(name)), self.wait, name=name)
        if held is None:
            return False
        good = await actor.hold(held, rng.uniform(0.0, 0.05))
        released = await actor.release(held)
        if released:
            await actor.look_back(held, self.lock_name(name))
        return released and good

    def lock_name(self, name: str) -> str:
        """The lock that is taken for it."""
        return name
