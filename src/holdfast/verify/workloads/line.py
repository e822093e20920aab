"""FIFO order and progress: everybody stands in one line, and goes on standing there."""

from __future__ import annotations

from functools import partial

import holdfast
from holdfast.verify.workloads.workload import Workload


class Line(Workload):
    """One name, held for a moment, always somebody waiting; nobody gives up early."""

    name = "line"
    names = (("lock", "verify/line"),)

    @classmethod
    def refusal(cls, client: holdfast.Client) -> str:
        return "" if client.guarantees.fair else "the engine does not promise an order"

    async def turn(self) -> bool:
        actor = self.actor
        _, name = self.names[0]
        held = await actor.acquire(partial(actor.client.lock, name), actor.ttl * 6, name=name)
        if held is None:
            return False
        await actor.pause(actor.rng.uniform(0.0, 0.01))
        return await actor.release(held)
