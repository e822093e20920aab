"""Readers and writers: many readers or one writer, and neither starves."""

from __future__ import annotations

from functools import partial
from typing import Any

import holdfast
from holdfast.verify.workloads.workload import Workload


class Readers(Workload):
    """Two in three come to read."""

    name = "readers"
    names = (("lock", "verify/readers"),)

    @classmethod
    def refusal(cls, client: holdfast.Client) -> str:
        return "" if "shared" in client.guarantees.modes else "the engine has no shared locks"

    async def turn(self) -> bool:
        actor, rng = self.actor, self.actor.rng
        _, name = self.names[0]
        mode = "shared" if rng.random() < 0.66 else "exclusive"
        held = await actor.acquire(partial(self.lock, name, mode), self.wait, name=name, mode=mode)
        if held is None:
            return False
        good = await actor.hold(held, rng.uniform(0.0, 0.05))
        return await actor.release(held) and good

    def lock(self, name: str, mode: str, **options: Any) -> Any:
        """One side of the lock."""
        both = self.actor.client.rwlock(name, **options)
        return both.read() if mode == "shared" else both.write()
