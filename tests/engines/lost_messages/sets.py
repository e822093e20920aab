"""Operations on several locks that are held together."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Deadlock, EngineUnavailable, LockLost, NotAcquired
from tests.conformance.apis import Front
from tests.engines.lost_messages.operations import LONG_WAIT, WAIT, Operation
from tests.engines.lost_messages.scene import Outcome, Scene


class Both(Operation):
    """Two locks, all or none."""

    def names(self, scene: Scene) -> list[str]:
        return [f"{scene.name}-1", f"{scene.name}-2"]

    async def expect_held(self, scene: Scene, name: str, grants: list[Front]) -> None:
        """Others see that it is held, or the holder hears that it was lost."""

        async def seen() -> bool:
            return not all(grant.target.valid for grant in grants) or await scene.count_claims(name, "lock") == 1

        await scene.eventually(seen, scene.site.lag, f"{name!r} is valid, but not held")

    async def judge_both(self, scene: Scene, outcome: Outcome, grants: Any) -> None:
        """The grants, if there are any, keep others out while all are valid. Nothing is left after them."""
        ours: list[Front] = [] if grants is None else [grants[name] for name in self.names(scene)]
        scene.grants += ours
        for name in self.names(scene) if ours else []:
            await self.expect_held(scene, name, ours)
        for grant in ours:
            await scene.give_back(grant)
        for name in self.names(scene):
            await scene.expect_free(outcome, scene.judge.lock(name))
            await scene.expect_claims(outcome, 0, name)


class AcquireBoth(Both):
    """Both are free."""

    limit = WAIT + 1.0

    async def act(self, scene: Scene) -> Any:
        return await scene.far.lock_all(*self.names(scene)).acquire(wait=WAIT)

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        assert not isinstance(outcome.error, Deadlock | LockLost), f"told {outcome}"
        await self.judge_both(scene, outcome, outcome.value)


class AcquireBothHeld(AcquireBoth):
    """Another client holds the second. They are never granted."""

    async def prepare(self, scene: Scene) -> None:
        await super().prepare(scene)
        scene.kept["held"] = await scene.rival.lock(self.names(scene)[1]).acquire(wait=5.0)

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        assert not outcome.done, "granted what another client holds"
        scene.kept["held"].check()
        await scene.kept["held"].release()
        await super().judge(scene, outcome)


class AcquireBothWaits(AcquireBothHeld):
    """The other client releases the second while this one waits."""

    limit = LONG_WAIT + 1.0

    async def act(self, scene: Scene) -> Any:
        scene.begin(self.release_soon(scene))
        return await scene.far.lock_all(*self.names(scene)).acquire(wait=LONG_WAIT)

    async def release_soon(self, scene: Scene) -> None:
        await asyncio.sleep(0.25)
        await scene.kept["held"].release()

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        await asyncio.gather(*scene.tasks)
        await AcquireBoth.judge(self, scene, outcome)


class TryBoth(AcquireBoth):
    """None is an answer too."""

    limit = 1.0

    async def act(self, scene: Scene) -> Any:
        return await scene.far.lock_all(*self.names(scene)).try_acquire()


class TryBothHeld(AcquireBothHeld):
    """What was taken of the first is given back within the same second."""

    limit = 1.0

    async def act(self, scene: Scene) -> Any:
        return await scene.far.lock_all(*self.names(scene)).try_acquire()

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        assert outcome.value is None, "granted what another client holds"
        scene.kept["held"].check()
        await scene.kept["held"].release()
        await AcquireBoth.judge(self, scene, outcome)


class EnterBoth(AcquireBoth):
    """The client holds the first already, and goes on holding it whatever becomes of both."""

    async def prepare(self, scene: Scene) -> None:
        await super().prepare(scene)
        scene.kept["outer"] = await scene.far.lock(self.names(scene)[0], reentrant=True).acquire(wait=5.0)

    async def act(self, scene: Scene) -> Any:
        grants = await scene.far.lock_all(*self.names(scene), reentrant=True).acquire(wait=WAIT)
        await grants.release()

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        first, second = self.names(scene)
        assert not isinstance(outcome.error, Deadlock | NotAcquired), f"told {outcome}"
        outer = scene.kept["outer"]
        scene.grants.append(outer)
        await self.expect_held(scene, first, [outer])
        if scene.site.guarantees.leased:
            outer.check()
        await scene.give_back(outer)
        for name in (first, second):
            await scene.expect_free(Outcome(), scene.judge.lock(name))
            await scene.expect_claims(Outcome(), 0, name)


class ReleaseBoth(Both):
    """They are released together."""

    async def prepare(self, scene: Scene) -> None:
        await super().prepare(scene)
        scene.kept["grants"] = await scene.far.lock_all(*self.names(scene)).acquire(wait=5.0)

    async def act(self, scene: Scene) -> Any:
        return await scene.kept["grants"].release()

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        # What is not leased is lost with its connection.
        true = EngineUnavailable if scene.site.guarantees.leased else EngineUnavailable | LockLost
        assert outcome.done or isinstance(outcome.error, true), f"told {outcome}"
        grants = scene.kept["grants"]
        assert not any(grants[name].target.valid for name in self.names(scene)), "valid after its release"
        for name in self.names(scene):
            await scene.expect_free(Outcome(), scene.judge.lock(name))
            await scene.expect_claims(Outcome(), 0, name)


SETS: list[Operation] = [
    AcquireBoth("lock_all"),
    AcquireBothHeld("lock_all, times out"),
    AcquireBothWaits("lock_all, waits"),
    TryBoth("lock_all, try_acquire"),
    TryBothHeld("lock_all, try_acquire of what is held"),
    EnterBoth("lock_all, re-entry"),
    ReleaseBoth("lock_all, release"),
]
