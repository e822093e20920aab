"""Operations that hold something. Each is prepared, carried out while a message is lost, and judged."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from holdfast import Deadlock, EngineUnavailable, LockLost, NotAcquired
from holdfast.model import Guarantees
from tests.conformance.apis import Front
from tests.engines.lost_messages.scene import CALL_LIMIT, Outcome, Scene

WAIT = 0.3
LONG_WAIT = 1.2
LONG_HOLD = 60.0


class Operation:
    """One operation."""

    limit: ClassVar[float] = 2 * CALL_LIMIT + 1.0
    """Within which time it has to answer. Those that have a `wait`: that and a second."""

    def __init__(self, name: str) -> None:
        self.name = name

    def possible(self, guarantees: Guarantees) -> bool:
        """Whether the engine can do it."""
        return True

    async def prepare(self, scene: Scene) -> None:
        await scene.warm()

    async def act(self, scene: Scene) -> Any:
        raise NotImplementedError

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        raise NotImplementedError


class Locking(Operation):
    """An operation on something that is held, of one of several shapes."""

    def __init__(self, name: str, shape: str = "lock") -> None:
        super().__init__(name if shape == "lock" else f"{name} ({shape})")
        self.shape = shape
        self.kind = {"semaphore": "semaphore", "election": "election"}.get(shape, "lock")

    def possible(self, guarantees: Guarantees) -> bool:
        mode = {"semaphore": "semaphore", "shared": "shared", "subtree": "subtree"}.get(self.shape, "exclusive")
        return mode in guarantees.modes and (self.shape != "election" or guarantees.recorded)

    def lock(self, client: Front, scene: Scene) -> Any:
        """What the client under test takes."""
        match self.shape:
            case "semaphore":
                return client.semaphore(scene.name, limit=2)
            case "shared":
                return client.rwlock(scene.name).read()
            case "subtree":
                return client.lock(scene.name, subtree=True)
            case "election":
                return Campaign(client.election(scene.name, "value"))
            case "max_hold":
                return client.lock(scene.name, max_hold=LONG_HOLD)
        return client.lock(scene.name)

    def conflicting(self, client: Front, scene: Scene) -> Any:
        """What cannot be held at the same time. One permit of two is always held by the rival."""
        match self.shape:
            case "shared":
                return client.rwlock(scene.name).write()
            case "subtree":
                return client.lock(f"{scene.name}/below")
        return self.lock(client, scene)

    async def prepare(self, scene: Scene) -> None:
        await scene.warm()
        if self.shape == "semaphore":
            permits = scene.another(scene.rival).semaphore(scene.name, limit=2)
            scene.kept["other permit"] = await permits.acquire(wait=5.0)

    @property
    def known(self) -> int:
        """How many claims there are on the name besides."""
        return 1 if self.shape == "semaphore" else 0

    async def judge_acquire(self, scene: Scene, outcome: Outcome) -> None:
        """After an acquire of what no other client holds."""
        assert not isinstance(outcome.error, Deadlock | LockLost), f"told {outcome}"
        if outcome.done and outcome.value is not None:
            await self.judge_grant(scene, scene.grant(outcome))
            return
        await scene.expect_claims(outcome, self.known, kind=self.kind)
        await scene.expect_free(outcome, self.conflicting(scene.judge, scene))
        await scene.expect_claims(outcome, self.known, kind=self.kind)

    async def judge_grant(self, scene: Scene, grant: Front) -> None:
        """A grant keeps others out for as long as it is valid, and gives way when it is released."""
        waiting = scene.begin(scene.taken(self.conflicting(scene.judge, scene).acquire(wait=scene.site.lag + 5.0)))
        await asyncio.sleep(0.1)
        assert not (grant.target.valid and waiting.done()), "another client was granted it too"
        await scene.give_back(grant)
        try:
            theirs = await waiting
        except NotAcquired as error:
            raise AssertionError(f"released, but another client does not get it: {error}") from error
        await theirs.release()


class Campaign:
    """An election in the shape of a lock."""

    def __init__(self, election: Front) -> None:
        self.election = election

    async def acquire(self, wait: float | None = None) -> Any:
        return await self.election.campaign(wait=wait)


class Acquire(Locking):
    """Of what is free."""

    limit = WAIT + 1.0

    async def act(self, scene: Scene) -> Any:
        return await self.lock(scene.far, scene).acquire(wait=WAIT)

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        await self.judge_acquire(scene, outcome)


class AcquireAndRelease(Acquire):
    """What is late arrives after both."""

    limit = WAIT + 1.0 + CALL_LIMIT + 1.0

    async def act(self, scene: Scene) -> Any:
        grant = await self.lock(scene.far, scene).acquire(wait=WAIT)
        try:
            await grant.release()
        finally:
            assert not grant.target.valid

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        lost = isinstance(outcome.error, LockLost) and not scene.site.guarantees.leased
        if outcome.done or lost:
            outcome = Outcome(error=NotAcquired(scene.name, 0.0), took=outcome.took)
            # Late requests have the time to be carried out.
            await asyncio.sleep(0.2)
        await self.judge_acquire(scene, outcome)


class FirstAcquire(Acquire):
    """The same by a client that has no session and no connection yet."""

    async def prepare(self, scene: Scene) -> None:
        pass


class TryAcquire(Acquire):
    """None is an answer too."""

    limit = 1.0

    async def act(self, scene: Scene) -> Any:
        return await self.lock(scene.far, scene).try_acquire()

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        if outcome.done and outcome.value is None:
            outcome = Outcome(error=NotAcquired(scene.name, 0.0), took=outcome.took)
        await self.judge_acquire(scene, outcome)


class AcquireHeld(Locking):
    """Of what another client holds. It is never granted."""

    limit = WAIT + 1.0

    async def prepare(self, scene: Scene) -> None:
        await super().prepare(scene)
        scene.kept["held"] = await self.conflicting(scene.rival, scene).acquire(wait=5.0)

    async def act(self, scene: Scene) -> Any:
        return await self.lock(scene.far, scene).acquire(wait=WAIT)

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        assert not outcome.done, "granted what another client holds"
        assert not isinstance(outcome.error, Deadlock | LockLost), f"told {outcome}"
        held = scene.kept["held"]
        known = self.known if self.shape == "subtree" else self.known + 1
        await scene.expect_claims(outcome, known, kind=self.kind)
        held.check()
        await held.release()
        await scene.expect_free(outcome, self.conflicting(scene.judge, scene))
        await scene.expect_claims(outcome, self.known, kind=self.kind)


class AcquireWaits(AcquireHeld):
    """The other client releases it while this one waits."""

    limit = LONG_WAIT + 1.0

    async def act(self, scene: Scene) -> Any:
        scene.begin(self.release_soon(scene))
        return await self.lock(scene.far, scene).acquire(wait=LONG_WAIT)

    async def release_soon(self, scene: Scene) -> None:
        await asyncio.sleep(0.25)
        await scene.kept["held"].release()

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        await asyncio.gather(*scene.tasks)
        await self.judge_acquire(scene, outcome)


class Release(Locking):
    """Another client waits behind it."""

    waits = True

    async def prepare(self, scene: Scene) -> None:
        await super().prepare(scene)
        scene.grants.append(await self.lock(scene.far, scene).acquire(wait=5.0))
        if self.waits:
            lock = self.conflicting(scene.judge, scene)
            scene.kept["next"] = scene.begin(scene.taken(lock.acquire(wait=scene.site.lag + 5.0)))
            await asyncio.sleep(0.15)

    async def act(self, scene: Scene) -> Any:
        return await scene.grants[0].release()

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        # What is not leased is lost with its connection.
        true = EngineUnavailable if scene.site.guarantees.leased else EngineUnavailable | LockLost
        assert outcome.done or isinstance(outcome.error, true), f"told {outcome}"
        assert not scene.grants[0].target.valid
        if self.waits:
            try:
                theirs = await scene.kept["next"]
            except NotAcquired as error:
                raise AssertionError(f"the next waiter is not granted it: {error}") from error
            await theirs.release()
        else:
            await scene.expect_free(outcome, self.conflicting(scene.judge, scene), within=scene.site.lag)
        await scene.expect_claims(Outcome(), self.known, kind=self.kind)


class ReleaseAlone(Release):
    """No client waits behind it."""

    waits = False


class Resign(Release):
    """By the election, and not by the grant."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "election")

    async def prepare(self, scene: Scene) -> None:
        await Locking.prepare(self, scene)
        election = scene.kept["election"] = scene.far.election(scene.name, "value")
        scene.grants.append(await election.campaign(wait=5.0))
        lock = self.conflicting(scene.judge, scene)
        scene.kept["next"] = scene.begin(scene.taken(lock.acquire(wait=scene.site.lag + 5.0)))
        await asyncio.sleep(0.15)

    async def act(self, scene: Scene) -> Any:
        return await scene.kept["election"].resign()


class Renew(Release):
    """A heartbeat that is asked for. The lock is kept whatever comes of it."""

    waits = False

    async def act(self, scene: Scene) -> Any:
        return await scene.grants[0].renew()

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        assert outcome.done or isinstance(outcome.error, EngineUnavailable), f"told {outcome}"
        await self.judge_grant(scene, scene.grants[0])


class HandOver(Release):
    """What was handed over can be adopted, and what was not is still held."""

    waits = False

    def possible(self, guarantees: Guarantees) -> bool:
        return guarantees.hand_over

    async def act(self, scene: Scene) -> Any:
        return await scene.grants[0].hand_over()

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        grant = scene.grants[0]
        assert outcome.done or isinstance(outcome.error, EngineUnavailable), f"told {outcome}"
        if outcome.done and grant.target.valid:
            theirs = await scene.judge.adopt(outcome.value)
            assert theirs.token > grant.token
            await scene.eventually(scene.is_lost(grant), scene.site.word, "the sender hears of the loss")
            await theirs.release()
            await scene.expect_free(Outcome(), self.conflicting(scene.judge, scene))
        else:
            await self.judge_grant(scene, grant)


class Adopt(Locking):
    """It is either the adopter's or still the sender's."""

    def possible(self, guarantees: Guarantees) -> bool:
        return guarantees.hand_over

    async def prepare(self, scene: Scene) -> None:
        await scene.warm()
        held = scene.kept["held"] = await scene.rival.lock(scene.name).acquire(wait=5.0)
        scene.kept["text"] = await held.hand_over()

    async def act(self, scene: Scene) -> Any:
        return await scene.far.adopt(scene.kept["text"])

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        sender = scene.kept["held"]
        assert outcome.done or isinstance(outcome.error, EngineUnavailable), f"told {outcome}"
        if outcome.done:
            grant = scene.grant(outcome)
            await scene.eventually(scene.is_lost(sender), scene.site.word, "the sender hears of the loss")
            await self.judge_grant(scene, grant)
            return
        # What was not adopted is the sender's; what was adopted in vain is withdrawn.
        if outcome.not_done:
            sender.check()
        try:
            await sender.release()
        except LockLost:
            assert not outcome.not_done, "told that nothing was done, but the sender has lost it"
        await scene.expect_free(Outcome(), self.conflicting(scene.judge, scene))
        await scene.expect_claims(Outcome(), 0)


class Break(Operation):
    """Of another client's lock."""

    def __init__(self, name: str, force: bool) -> None:
        super().__init__(name)
        self.force = force
        if not force:
            # The holder's client hears of it, and one that does not has a ttl.
            self.limit = 30.0  # type: ignore[misc]

    def possible(self, guarantees: Guarantees) -> bool:
        return guarantees.recorded

    async def prepare(self, scene: Scene) -> None:
        await scene.warm()
        scene.kept["held"] = await scene.rival.lock(scene.name).acquire(wait=5.0)

    async def act(self, scene: Scene) -> Any:
        return await scene.far.break_lock(scene.name, force=self.force)

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        held = scene.kept["held"]
        assert outcome.done or isinstance(outcome.error, EngineUnavailable), f"told {outcome}"
        if outcome.done:
            await scene.expect_claims(outcome, 0)
            await scene.eventually(scene.is_lost(held), scene.site.word, "its holder hears of it")
            assert outcome.value == 1, f"told {outcome}, but one grant was broken"
        elif outcome.not_done:
            await asyncio.sleep(0.2)
            held.check()
            await scene.expect_claims(outcome, 1)
        try:
            await held.release()
        except LockLost:
            assert not outcome.not_done, "told that nothing was done, but the holder has lost it"
        await scene.expect_free(Outcome(), scene.judge.lock(scene.name))


class Close(Operation):
    """Of a client that holds one lock and waits for another."""

    async def prepare(self, scene: Scene) -> None:
        await scene.warm()
        scene.grants.append(await scene.far.lock(scene.name).acquire(wait=5.0))
        scene.kept["held"] = await scene.rival.lock(f"{scene.name}-2").acquire(wait=5.0)
        other = scene.another(scene.far)
        waiting = scene.begin(other.lock(f"{scene.name}-2").acquire())
        await asyncio.sleep(0.15)
        assert not waiting.done()

    async def act(self, scene: Scene) -> Any:
        return await scene.far.close()

    async def judge(self, scene: Scene, outcome: Outcome) -> None:
        assert outcome.done or isinstance(outcome.error, EngineUnavailable), f"told {outcome}"
        assert not scene.grants[0].target.valid
        # A session that could not be ended ends with its ttl.
        await scene.expect_free(Outcome(), scene.judge.lock(scene.name))
        await scene.expect_claims(Outcome(), 1, f"{scene.name}-2")
        await scene.kept["held"].release()
        await scene.expect_free(Outcome(), scene.judge.lock(f"{scene.name}-2"))


SHAPES = ("lock", "semaphore", "shared", "subtree", "election", "max_hold")

HOLDING: list[Operation] = [
    FirstAcquire("first acquire"),
    *(Acquire("acquire", shape) for shape in SHAPES),
    *(AcquireAndRelease("acquire and release", shape) for shape in ("lock", "semaphore", "shared", "max_hold")),
    TryAcquire("try_acquire"),
    *(AcquireHeld("acquire, times out", shape) for shape in SHAPES),
    *(AcquireWaits("acquire, waits", shape) for shape in SHAPES),
    *(Release("release", shape) for shape in ("lock", "semaphore", "shared", "subtree")),
    ReleaseAlone("release, nobody waits"),
    Resign("resign"),
    Renew("renew"),
    HandOver("hand_over"),
    Adopt("adopt"),
    Break("break", force=False),
    Break("break, forced", force=True),
    Close("close"),
]
