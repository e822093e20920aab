"""Elections: at most one leads, and everybody is told who."""

from __future__ import annotations

from functools import partial

from holdfast.verify.workloads.workload import Workload


class Election(Workload):
    """Campaign, lead for a while, resign."""

    name = "election"
    names = (("election", "verify/election"),)

    async def turn(self) -> bool:
        actor, rng = self.actor, self.actor.rng
        _, name = self.names[0]
        build = partial(actor.client.election, name, value=actor.process)
        held = await actor.acquire(build, self.wait, name=name, kind="election")
        if held is None:
            return False
        good = await actor.hold(held, rng.uniform(0.0, 0.1))
        return await actor.release(held, op="resign") and good
