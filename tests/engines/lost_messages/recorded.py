"""Operations on what is kept in cells: values, results, counts, logs, members."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from holdfast import Conflict, EngineUnavailable, NotAcquired
from holdfast.model import Guarantees
from tests.engines.lost_messages.operations import LONG_WAIT, WAIT, Operation
from tests.engines.lost_messages.scene import LATENESS, TTL, Outcome, Scene


class Kept(Operation):
    """An operation that needs cells."""

    def possible(self, guarantees: Guarantees) -> bool:
        return guarantees.cells


class CellGet(Kept):
    """It changes nothing."""

    async def prepare(self, scene: Scene) -> None:
        await scene.warm()
        scene.kept["version"] = await scene.rival.cell(scene.name).set("old")

    async def act(self, scene: Scene) -> Any:
        return await scene.far.cell(scene.name).get()

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        kept = ("old", scene.kept["version"])
        assert outcome.done or isinstance(outcome.error, EngineUnavailable), f"told {outcome}"
        assert not outcome.done or outcome.value == kept, f"told {outcome}"
        assert await scene.judge.cell(scene.name).get() == kept


class CellWrite(CellGet):
    """What is written is what was told: the new value, the old one, or one of the two."""

    new: Any = "new"

    def told(self, outcome: Outcome) -> Any:
        """What the cell holds after it was done."""
        return self.new, outcome.value

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        old = ("old", scene.kept["version"])
        found = await scene.judge.cell(scene.name).get()
        assert outcome.done or isinstance(outcome.error, EngineUnavailable), f"told {outcome}; there is {found}"
        if outcome.done:
            assert found == self.told(outcome), f"told {outcome}; there is {found}"
        elif outcome.not_done:
            await asyncio.sleep(0.2)
            found = await scene.judge.cell(scene.name).get()
            assert found == old, f"told {outcome}; there is {found}"
        else:
            assert found == old or found[0] == self.new, f"told {outcome}; there is {found}"


class CellSet(CellWrite):
    async def act(self, scene: Scene) -> Any:
        return await scene.far.cell(scene.name).set("new", scene.kept["version"])


class CellSetAny(CellWrite):
    """Whatever the version is."""

    async def act(self, scene: Scene) -> Any:
        return await scene.far.cell(scene.name).set("new")


class CellUpdate(CellWrite):
    new = "old+"

    def told(self, outcome: Outcome) -> Any:
        return outcome.value

    async def act(self, scene: Scene) -> Any:
        return await scene.far.cell(scene.name).update(lambda value: f"{value}+")


class CellDelete(CellWrite):
    new = None

    async def act(self, scene: Scene) -> Any:
        return await scene.far.cell(scene.name).delete(scene.kept["version"])

    def told(self, outcome: Outcome) -> Any:
        return None, 0


class Once(Kept):
    """One result for all, and nothing held after it."""

    limit = WAIT + 1.0 + 2 * TTL
    """The `wait` is over when the work begins; its result is recorded for as long as the work is held."""

    async def act(self, scene: Scene) -> Any:
        return await scene.far.once(scene.name, wait=WAIT).run(self.work(scene, "first"))

    @staticmethod
    def work(scene: Scene, result: str) -> Any:
        def plain(grant: object) -> str:
            scene.kept[result] = True
            return result

        async def work(grant: object) -> str:
            return plain(grant)

        return scene.site.api.function(work, plain)

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        assert outcome.done or isinstance(outcome.error, EngineUnavailable | NotAcquired), f"told {outcome}"
        assert "first" in scene.kept or outcome.took < WAIT + 1.0 + LATENESS, f"too late: {outcome}"
        await scene.expect_claims(Outcome(), 0, kind="once")
        found = await scene.judge.once(scene.name, wait=scene.site.lag).run(self.work(scene, "second"))
        if outcome.done:
            assert outcome.value == found == "first", f"told {outcome}; another client is told {found!r}"
        elif outcome.not_done and not outcome.gave_up:
            assert found == "second", f"told {outcome}; another client is told {found!r}"


class Forget(Once):
    """What another client has recorded."""

    limit = Kept.limit

    async def prepare(self, scene: Scene) -> None:
        await super().prepare(scene)
        await scene.rival.once(scene.name, wait=5.0).run(self.work(scene, "first"))

    async def act(self, scene: Scene) -> Any:
        return await scene.far.once(scene.name).forget()

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        assert outcome.done or isinstance(outcome.error, EngineUnavailable), f"told {outcome}"
        assert not outcome.done or outcome.value is True, f"told {outcome}, but there was a record"
        found = await scene.judge.once(scene.name, wait=scene.site.lag).run(self.work(scene, "second"))
        allowed = {"second"} if outcome.done else {"first"} if outcome.not_done else {"first", "second"}
        assert found in allowed, f"told {outcome}; another client is told {found!r}"


class BarrierWait(Kept):
    """Two parties; the other one is there already."""

    limit = LONG_WAIT + 1.0

    def possible(self, guarantees: Guarantees) -> bool:
        return guarantees.cells and guarantees.recorded

    async def prepare(self, scene: Scene) -> None:
        await scene.warm()
        lag = 2 * scene.site.lag
        scene.kept["other"] = scene.begin(scene.rival.barrier(scene.name, parties=2).wait(wait=lag))
        await asyncio.sleep(0.15)

    async def act(self, scene: Scene) -> Any:
        return await scene.far.barrier(scene.name, parties=2).wait(wait=LONG_WAIT)

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        assert outcome.done or isinstance(outcome.error, EngineUnavailable | NotAcquired), f"told {outcome}"
        other = scene.kept["other"]
        if not outcome.done:
            # The party is gone, or has been counted: a third one is not kept out in either case.
            await asyncio.wait({other}, timeout=0.3)
            assert not (outcome.not_done and other.done()), f"told {outcome}, but the other party has passed"
            if not other.done():
                third = scene.begin(scene.judge.barrier(scene.name, parties=2).wait(wait=scene.site.lag))
                await asyncio.wait({third, other}, timeout=scene.site.lag, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({other}, timeout=scene.site.lag)
        assert other.done(), f"told {outcome}; the other party still waits"
        assert other.exception() is None, f"told {outcome}; the other party was told {other.exception()!r}"
        assert not outcome.done or other.result() == outcome.value
        await scene.expect_claims(Outcome(), 0, kind="barrier")


class CountDown(Kept):
    async def act(self, scene: Scene) -> Any:
        return await scene.far.latch(scene.name, count=2).count_down()

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        assert outcome.done or isinstance(outcome.error, EngineUnavailable), f"told {outcome}"
        assert not outcome.done or outcome.value == 1, f"told {outcome}"
        left = await scene.judge.latch(scene.name, count=2).count_down()
        allowed = {0} if outcome.done else {1} if outcome.not_done else {0, 1}
        assert left in allowed, f"told {outcome}; another client is told that {left} are missing"


class LatchWait(Kept):
    """It is opened meanwhile."""

    limit = LONG_WAIT + 1.0

    async def act(self, scene: Scene) -> Any:
        scene.begin(self.open_soon(scene))
        return await scene.far.latch(scene.name, count=1).wait(wait=LONG_WAIT)

    async def open_soon(self, scene: Scene) -> None:
        await asyncio.sleep(0.25)
        await scene.rival.latch(scene.name, count=1).count_down()

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        await asyncio.gather(*scene.tasks)
        assert outcome.done or isinstance(outcome.error, EngineUnavailable | NotAcquired), f"told {outcome}"
        await scene.judge.latch(scene.name, count=1).wait(wait=1.0)


class Append(Kept):
    expected: int | None = 0

    async def act(self, scene: Scene) -> Any:
        return await scene.far.log(scene.name).append(["event"], expected=self.expected)

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        if outcome.not_done:
            await asyncio.sleep(0.2)
        found = await scene.judge.log(scene.name).read()
        assert not isinstance(outcome.error, Conflict), f"told {outcome}, but no other client appended"
        assert outcome.done or isinstance(outcome.error, EngineUnavailable), f"told {outcome}"
        allowed = [["event"]] if outcome.done else [[]] if outcome.not_done else [[], ["event"]]
        assert found in allowed, f"told {outcome}; there is {found}"
        assert not outcome.done or outcome.value == 1


class AppendAny(Append):
    """However long the log is."""

    expected = None


class Join(Kept):
    """A member owns keys beside another one."""

    def possible(self, guarantees: Guarantees) -> bool:
        return guarantees.cells and guarantees.recorded

    async def prepare(self, scene: Scene) -> None:
        await scene.warm()
        other = scene.kept["other"] = scene.rival.partition(scene.name, "other")
        await other.join()
        scene.kept["member"] = scene.far.partition(scene.name, "far")

    async def act(self, scene: Scene) -> Any:
        return await scene.kept["member"].join()

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        other, member = scene.kept["other"], scene.kept["member"]
        assert outcome.done or isinstance(outcome.error, EngineUnavailable), f"told {outcome}"
        expected = ("far", "other") if outcome.done else ("other",)

        async def agree() -> bool:
            return bool(other.members() == expected and (not outcome.done or member.members() == expected))

        async def story() -> str:
            return f"{other.members()} and {member.members()}"

        await scene.eventually(agree, scene.site.lag + 2.0, f"told {outcome}: members are {expected}, but {{}}", story)
        owners = [f"key{number}" for number in range(20)]
        assert not [key for key in owners if other.owns(key) and member.owns(key)], "two owners of a key"
        if outcome.done:
            # Over a connection that has ended it goes on by itself.
            with contextlib.suppress(EngineUnavailable):
                await member.leave()
        await other.leave()
        await scene.expect_claims(Outcome(), 0, kind="partition")


class Leave(Join):
    """Its keys go to the other member."""

    async def prepare(self, scene: Scene) -> None:
        await super().prepare(scene)
        await scene.kept["member"].join()

    async def act(self, scene: Scene) -> Any:
        return await scene.kept["member"].leave()

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        assert outcome.done or isinstance(outcome.error, EngineUnavailable), f"told {outcome}"
        await super().judge(scene, Outcome(error=EngineUnavailable("", "", "unknown"), took=outcome.took))


RECORDED: list[Operation] = [
    CellGet("cell get"),
    CellSet("cell set"),
    CellSetAny("cell set, any version"),
    CellUpdate("cell update"),
    CellDelete("cell delete"),
    Once("once"),
    Forget("once forget"),
    BarrierWait("barrier"),
    CountDown("latch count_down"),
    LatchWait("latch wait"),
    Append("log append"),
    AppendAny("log append, any length"),
    Join("partition join"),
    Leave("partition leave"),
]
