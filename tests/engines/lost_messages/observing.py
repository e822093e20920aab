"""Operations that change nothing: questions, and streams of what other clients do."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from holdfast import EngineUnavailable, HoldfastError
from holdfast.locks.watching import SAFETY_NET
from holdfast.model import Guarantees
from tests.engines.lost_messages.operations import WAIT, Operation
from tests.engines.lost_messages.scene import Outcome, Scene

READ_FOR = 1.0
"""How long a stream is read while the fault lasts."""


class Question(Operation):
    """About what another client holds."""

    kind = "lock"

    async def prepare(self, scene: Scene) -> None:
        await scene.warm()
        scene.kept["held"] = await scene.rival.lock(scene.name).acquire(wait=5.0)

    def is_true(self, scene: Scene, answer: Any) -> bool:
        """Whether an answer names the holder."""
        raise NotImplementedError

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        assert outcome.done or isinstance(outcome.error, EngineUnavailable), f"told {outcome}"
        assert not outcome.done or self.is_true(scene, outcome.value), f"told {outcome}"
        scene.kept["held"].check()
        await scene.expect_claims(outcome, 1, kind=self.kind)
        await scene.kept["held"].release()
        await scene.expect_claims(outcome, 0, kind=self.kind)


class Inspect(Question):
    async def act(self, scene: Scene) -> Any:
        return await scene.far.inspect(scene.name)

    def is_true(self, scene: Scene, answer: Any) -> bool:
        return len(answer.holders) == 1


class ListLocks(Question):
    def possible(self, guarantees: Guarantees) -> bool:
        return guarantees.recorded

    async def act(self, scene: Scene) -> Any:
        return await scene.far.list(scene.name)

    def is_true(self, scene: Scene, answer: Any) -> bool:
        return [info.name for info in answer] == [scene.name]


class WhoLeads(Question):
    kind = "election"

    def possible(self, guarantees: Guarantees) -> bool:
        return guarantees.recorded

    async def prepare(self, scene: Scene) -> None:
        await scene.warm()
        scene.kept["held"] = await scene.rival.election(scene.name, "value").campaign(wait=5.0)

    async def act(self, scene: Scene) -> Any:
        return await scene.far.election(scene.name).leader()

    def is_true(self, scene: Scene, answer: Any) -> bool:
        return bool(answer and answer.value == "value")


class Streaming(Operation):
    """A stream tells everything that another client did while the fault lasted, or it raises an error."""

    limit = READ_FOR + 2.0

    def possible(self, guarantees: Guarantees) -> bool:
        return guarantees.cells and guarantees.recorded

    def stream(self, scene: Scene) -> Any:
        """What is read."""
        raise NotImplementedError

    async def change(self, scene: Scene) -> None:
        """What the other client does."""
        raise NotImplementedError

    def is_told(self, scene: Scene, seen: list[Any]) -> bool:
        """Whether what was read is all of it, and true."""
        raise NotImplementedError

    async def act(self, scene: Scene) -> Any:
        actor = scene.another(scene.far)
        scene.kept["seen"], scene.kept["stream"] = [], self.stream(scene).by(actor.actor)
        reading = scene.kept["reading"] = scene.begin(self.read(scene))
        # A transaction of ours that stands still may keep the other client waiting until the fault is over.
        scene.kept["change"] = scene.begin(self.change(scene))
        await asyncio.wait({reading}, timeout=READ_FOR)

    async def read(self, scene: Scene) -> None:
        """Keep what comes, until all is told."""
        seen = scene.kept["seen"]
        try:
            while not self.is_told(scene, seen):
                seen.append(await scene.kept["stream"].next(60.0))
        finally:
            # In any thread, also while another one waits for what comes next.
            await scene.another(scene.kept["stream"]).stop()

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        reading = scene.kept["reading"]
        try:
            await scene.kept["change"]
            await asyncio.wait({reading}, timeout=scene.site.lag + 2 * SAFETY_NET)
            assert reading.done(), f"nothing more was told after {scene.kept['seen']}"
            error = reading.exception()
            assert error is None or isinstance(error, HoldfastError), f"raised {error!r}"
        finally:
            await scene.another(scene.kept["stream"]).stop()


class WatchLocks(Streaming):
    """Each event, in order."""

    def possible(self, guarantees: Guarantees) -> bool:
        return {"granted", "released"} <= guarantees.events

    async def prepare(self, scene: Scene) -> None:
        await scene.warm()
        # From here on nothing may be missed.
        scene.kept["watch"] = await scene.far.watch(scene.name).__aenter__()

    def stream(self, scene: Scene) -> Any:
        return scene.kept["watch"]

    async def change(self, scene: Scene) -> None:
        scene.kept["own"] = scene.begin(self.use(scene))
        for _ in range(2):
            await (await scene.rival.lock(scene.name).acquire(wait=5.0)).release()

    async def use(self, scene: Scene) -> None:
        """Have requests of the client on their way: some engines tell of events without being asked."""
        with contextlib.suppress(EngineUnavailable):
            await (await scene.far.lock(f"{scene.name}-own").acquire(wait=WAIT)).release()

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        if "own" in scene.kept:
            await scene.kept["own"]
        await super().judge(scene, outcome)

    def is_told(self, scene: Scene, seen: list[Any]) -> bool:
        whats = [event.type for event in seen if event.name == scene.name]
        expected = ["granted", "released"] * 2
        assert whats == expected[: len(whats)], f"told {whats}"
        return whats == expected


class BeginWatch(WatchLocks):
    """The watch begins while the fault lasts. It tells what happens from then on."""

    async def prepare(self, scene: Scene) -> None:
        await scene.warm()

    def stream(self, scene: Scene) -> Any:
        return scene.far.watch(scene.name)

    async def read(self, scene: Scene) -> None:
        stream = scene.kept["stream"]
        try:
            await stream.__aenter__()
            scene.kept["begun"] = True
            scene.begin(super().change(scene))
            await super().read(scene)
        finally:
            await scene.another(stream).stop()

    async def change(self, scene: Scene) -> None:
        """It comes when the watch has begun."""


class Observe(Streaming):
    """The leader that there is in the end."""

    async def prepare(self, scene: Scene) -> None:
        await scene.warm()
        scene.kept["held"] = await scene.rival.election(scene.name, "first").campaign(wait=5.0)

    def stream(self, scene: Scene) -> Any:
        return scene.far.election(scene.name).observe()

    async def change(self, scene: Scene) -> None:
        await asyncio.sleep(0.1)
        await scene.kept["held"].release()
        scene.kept["held"] = await scene.rival.election(scene.name, "second").campaign(wait=5.0)

    def is_told(self, scene: Scene, seen: list[Any]) -> bool:
        return bool(seen and seen[-1] and seen[-1].value == "second")


class WatchCell(Streaming):
    """The value that there is in the end."""

    async def prepare(self, scene: Scene) -> None:
        await scene.warm()
        await scene.rival.cell(scene.name).set("old")

    def stream(self, scene: Scene) -> Any:
        return scene.far.cell(scene.name).watch()

    async def change(self, scene: Scene) -> None:
        await asyncio.sleep(0.1)
        await scene.rival.cell(scene.name).set("new")

    def is_told(self, scene: Scene, seen: list[Any]) -> bool:
        values = [value for value, _ in seen]
        assert values in ([], ["old"], ["new"], ["old", "new"]), f"told {values}"
        return values[-1:] == ["new"]


class Follow(Streaming):
    """Each event of a log once, in order."""

    async def prepare(self, scene: Scene) -> None:
        await scene.warm()
        await scene.rival.log(scene.name).append(["a"])

    def stream(self, scene: Scene) -> Any:
        return scene.far.log(scene.name).follow()

    async def change(self, scene: Scene) -> None:
        await asyncio.sleep(0.1)
        await scene.rival.log(scene.name).append(["b", "c"])

    def is_told(self, scene: Scene, seen: list[Any]) -> bool:
        expected = [(0, "a"), (1, "b"), (2, "c")]
        assert seen == expected[: len(seen)], f"told {seen}"
        return seen == expected


OBSERVING: list[Operation] = [
    Inspect("inspect"),
    ListLocks("list"),
    WhoLeads("leader"),
    WatchLocks("watch"),
    BeginWatch("watch begins"),
    Observe("observe"),
    WatchCell("cell watch"),
    Follow("log follow"),
]
