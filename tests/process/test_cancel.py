"""An acquire that is cancelled leaves nothing behind: at every await of every recipe, step by step."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast import aio
from holdfast.locks import handing
from holdfast.locks.acquire import acquire
from holdfast.locks.barrier import BarrierFront
from holdfast.locks.client import Client
from holdfast.locks.hold import Entry
from holdfast.locks.latch import LatchFront
from holdfast.locks.release import release
from holdfast.locks.several import acquire_all
from holdfast.locks.spec import Spec, make_spec
from holdfast.model import Claim
from holdfast.runtime.simulated import Cancelled
from tests.faults.simulation import CancellingWorld, Simulation

Work = Coroutine[Any, Any, Any]

LOCK = make_spec("lock", "k")
SPECS = {
    "lock": LOCK,
    "read": make_spec("lock", "k", mode="shared"),
    "subtree": make_spec("lock", "k", subtree=True),
    "max_hold": make_spec("lock", "k", max_hold=60.0),
    "semaphore": make_spec("semaphore", "k", limit=1),
    "election": make_spec("election", "k", note="host:9000"),
}
MOST_PAUSES = 200
SEEDS = int(os.environ.get("HOLDFAST_SEEDS", "8"))


class Scene:
    """A victim that is cancelled, and a rival that it meets."""

    def __init__(self, seed: int, at_pause: int, times: int) -> None:
        self.world = CancellingWorld(seed, at_pause, times)
        self.simulation = Simulation(self.world)
        self.rival, self.me = self.simulation.client(), self.simulation.client()

    def hold_for(self, spec: Spec, seconds: float) -> None:
        """Let the rival hold something for a while."""
        entry: Entry = self.simulation.do(acquire(self.rival, spec, None, []))

        async def let_go() -> None:
            await self.rival.io.wait(self.rival.io.signal(), self.rival.io.now() + seconds)
            await release(self.rival, entry)

        self.world.spawn("rival", let_go())

    def cancelled(self, work: Work) -> bool:
        """Run the victim, cancelling it; whether it was cancelled, rather than done before."""
        task = self.world.spawn("victim", work)
        self.world.victim = task
        try:
            self.world.run_until_done(task)
        except Cancelled:
            return True
        return False


def check_every_pause(prepare: Callable[[Scene], Callable[[], Work]], times: int) -> int:
    """Cancel at the first pause, then at the second, and so on, until there is none left; how many there were."""
    return min(check_every_pause_of(prepare, times, seed) for seed in range(SEEDS))


def check_every_pause_of(prepare: Callable[[Scene], Callable[[], Work]], times: int, seed: int) -> int:
    for at_pause in range(1, MOST_PAUSES):
        scene = Scene(seed, at_pause, times)
        work = prepare(scene)
        if not scene.cancelled(work()):
            scene.simulation.close()
            return at_pause - 1
        # Nothing here has to wait for a ttl: the sessions live on and are renewed.
        scene.simulation.pass_time(3.0)
        left = scene.simulation.left_behind(scene.me)
        assert left == [], f"seed {seed}, cancelled at pause {at_pause}: {left}"
        scene.simulation.pass_time(5.0)
        for spec in SPECS.values():
            hold = scene.simulation.do(acquire(scene.rival, spec, 1.0, []))
            scene.simulation.do(release(scene.rival, hold))
        scene.simulation.close()
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("kind", SPECS)
def test_a_cancelled_acquire_leaves_nothing_when_nobody_is_in_the_way(kind: str, times: int) -> None:
    assert check_every_pause(lambda scene: lambda: acquire(scene.me, SPECS[kind], None, []), times) >= 3


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("kind", SPECS)
def test_a_cancelled_acquire_leaves_nothing_when_it_stood_in_line(kind: str, times: int) -> None:
    def prepare(scene: Scene) -> Callable[[], Work]:
        scene.hold_for(LOCK if kind == "read" else SPECS[kind], 4.0)
        return lambda: acquire(scene.me, SPECS[kind], None, [])

    assert check_every_pause(prepare, times) >= 6


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("held", [None, "a", "b", "c"])
def test_cancelled_while_it_takes_several_it_keeps_none(held: str | None, times: int) -> None:
    specs = [make_spec("lock", name) for name in "abc"]

    def prepare(scene: Scene) -> Callable[[], Work]:
        if held is not None:
            scene.hold_for(make_spec("lock", held), 4.0)
        return lambda: acquire_all(scene.me, specs, None, [])

    assert check_every_pause(prepare, times) >= 6


@pytest.mark.parametrize("times", [1, 2])
def test_a_wait_that_ends_by_itself_may_be_cancelled_too(times: int) -> None:
    def prepare(scene: Scene) -> Callable[[], Work]:
        scene.hold_for(LOCK, 4.0)

        async def give_up() -> None:
            try:
                await acquire(scene.me, LOCK, 0.5, [])
            except TimeoutError:
                return

        return give_up

    assert check_every_pause(prepare, times) >= 6


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("comes", [True, False])
def test_a_cancelled_party_of_a_barrier_is_counted_no_more(comes: bool, times: int) -> None:
    def prepare(scene: Scene) -> Callable[[], Work]:
        if comes:

            async def come_later() -> None:
                await scene.rival.io.wait(scene.rival.io.signal(), scene.rival.io.now() + 1.0)
                try:
                    await BarrierFront(scene.rival, "b", 2).wait(4.0)
                except TimeoutError:
                    return

            scene.world.spawn("rival", come_later())

        async def wait() -> None:
            try:
                await BarrierFront(scene.me, "b", 2).wait(None if comes else 2.0)
            except TimeoutError:
                return

        return wait

    assert check_every_pause(prepare, times) >= 10


@pytest.mark.parametrize("times", [1, 2])
def test_a_cancelled_wait_for_a_latch_leaves_no_watch_behind(times: int) -> None:
    def prepare(scene: Scene) -> Callable[[], Work]:
        async def count_down() -> None:
            await scene.rival.io.wait(scene.rival.io.signal(), scene.rival.io.now() + 1.0)
            await LatchFront(scene.rival, "l", 1, 60.0).count_down(1)

        scene.world.spawn("rival", count_down())
        return lambda: LatchFront(scene.me, "l", 1, 60.0).wait(None)

    assert check_every_pause(prepare, times) >= 6


@pytest.mark.parametrize("times", [1, 2])
def test_a_cancelled_adoption_holds_nothing(times: int) -> None:
    def prepare(scene: Scene) -> Callable[[], Work]:
        hold = scene.simulation.do(acquire(scene.rival, LOCK, None, []))
        text = scene.simulation.do(handing.hand_over(scene.rival, hold.held))

        async def end() -> None:
            # Whatever became of the adoption, the sender ends its own part.
            await scene.rival.io.wait(scene.rival.io.signal(), scene.rival.io.now() + 3.0)
            if hold.held.reason is None:
                await release(scene.rival, hold)

        scene.world.spawn("rival", end())
        return lambda: handing.adopt(scene.me, text, [])

    assert check_every_pause(prepare, times) >= 3


def check_every_pause_of_a_release(times: int, seed: int) -> int:
    """Cancel a release at each of its pauses; how many there were. Nothing is held at the moment that it stops."""
    for at_pause in range(1, MOST_PAUSES):
        scene = Scene(seed, at_pause, times)
        entry: Entry = scene.simulation.do(acquire(scene.me, LOCK, None, []))
        stopped = scene.cancelled(release(scene.me, entry))
        left = scene.simulation.left_behind(scene.me)
        assert left == [], f"seed {seed}, cancelled at pause {at_pause}: {left}"
        scene.simulation.close()
        if not stopped:
            return at_pause - 1
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_cancelled_release_has_let_go_when_it_stops(times: int) -> None:
    assert min(check_every_pause_of_a_release(times, seed) for seed in range(SEEDS)) >= 1


def test_a_withdrawal_that_is_left_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(*_: object) -> bool:
        return True

    monkeypatch.setattr(Client, "withdraw", forget)
    with pytest.raises(AssertionError, match="cancelled at pause"):
        check_every_pause(lambda scene: lambda: acquire(scene.me, LOCK, None, []), 1)


def test_a_cancelled_release_that_leaves_it_to_the_keeper_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def later(client: Client, claim: Claim, unanswered: bool) -> bool:
        client.start_keeper().withdraw(claim, unanswered)
        return False

    monkeypatch.setattr(Client, "withdraw", later)
    with pytest.raises(AssertionError, match="cancelled at pause"):
        min(check_every_pause_of_a_release(1, seed) for seed in range(SEEDS))


async def nothing_is_left(locks: aio.Client) -> None:
    """Wait until no lock is in use: what could not be withdrawn at once is withdrawn by the keeper."""
    until = time.monotonic() + 3.0
    while left := await locks.list():
        assert time.monotonic() < until, left
        await asyncio.wait([asyncio.create_task(asyncio.sleep(0.005))])


CANCELS = int(os.environ.get("HOLDFAST_CANCELS", "150"))


async def test_cancelling_at_random_moments_on_a_real_file_leaves_nothing_behind(tmp_path: Path) -> None:
    seed = int(os.environ.get("HOLDFAST_SEED", "") or random.SystemRandom().randrange(2**32))
    print(f"HOLDFAST_SEED={seed}")
    chance = random.Random(seed)
    url = f"sqlite:///{tmp_path}/locks.db"

    async def take(locks: aio.Client, name: str) -> None:
        async with locks.lock(name):
            await asyncio.sleep(chance.uniform(0.0, 0.002))

    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(aio.connect(url, ttl=600.0)) for _ in range(2)]
        for _ in range(CANCELS // 10):
            tasks = [asyncio.create_task(take(chance.choice(clients), chance.choice("ab"))) for _ in range(10)]
            for task in tasks:
                await asyncio.sleep(chance.uniform(0.0, 0.003))  # the moment is what is random here
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert [end for end in ended if end is not None and not isinstance(end, asyncio.CancelledError)] == []
            await nothing_is_left(clients[0])
