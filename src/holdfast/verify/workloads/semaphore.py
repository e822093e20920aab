"""Semaphores: never more permits out than there are, and each slot in one hand."""

from __future__ import annotations

from functools import partial

import holdfast
from holdfast.verify.workloads.workload import Workload

LIMIT = 2


class Semaphore(Workload):
    """Fewer permits than clients."""

    name = "semaphore"
    names = (("semaphore", "verify/semaphore"),)

    @classmethod
    def refusal(cls, client: holdfast.Client) -> str:
        return "" if "semaphore" in client.guarantees.modes else "the engine has no semaphores"

    async def turn(self) -> bool:
        actor, rng = self.actor, self.actor.rng
        _, name = self.names[0]
        held = await actor.acquire(
            partial(actor.client.semaphore, name, LIMIT), self.wait, name=name, kind="semaphore", limit=LIMIT
        )
        if held is None:
            return False
        good = await actor.hold(held, rng.uniform(0.0, 0.1))
        return await actor.release(held) and good
