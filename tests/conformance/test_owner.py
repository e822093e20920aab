"""Owners: reentrancy, deadlocks, and who is who."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import Deadlock, NotAcquired, aio
from tests.conformance.abilities import needs
from tests.conformance.apis import Api, Front
from tests.conformance.stage import Stage, eventually, soon


@pytest.mark.any_connection
async def test_a_reentrant_lock_counts_its_entries(locks: Front, rival: Front) -> None:
    lock = locks.lock("k", reentrant=True)
    first = await lock.acquire()
    second = await lock.acquire()
    third = await lock.try_acquire()

    assert first.token == second.token == third.token
    await third.release()
    await second.release()
    assert await rival.lock("k").try_acquire() is None
    assert first.valid
    await first.release()
    assert await rival.lock("k").try_acquire() is not None


async def test_a_grant_that_was_released_does_not_take_another_entry_with_it(locks: Front, rival: Front) -> None:
    lock = locks.lock("k", reentrant=True)
    first = await lock.acquire()
    second = await lock.acquire()
    await second.release()

    with pytest.raises(holdfast.NotHeld):
        await second.release()
    first.check()
    assert await rival.lock("k").try_acquire() is None


async def test_every_entry_of_a_lost_grant_says_so_at_its_release(stage: Stage, locks: Front, rival: Front) -> None:
    lock = locks.lock("k", reentrant=True)
    entries = [await lock.acquire(), await lock.acquire()]
    await stage.take_away("k", rival)
    await eventually(lambda: not entries[0].valid)

    for entry in reversed(entries):
        with pytest.raises(holdfast.LockLost):
            await entry.release()


async def test_reentrancy_is_of_the_owner_and_of_nobody_else(stage: Stage, locks: Front) -> None:
    held = await locks.lock("k", reentrant=True).acquire()

    assert await stage.another(locks).lock("k", reentrant=True).try_acquire() is None
    assert held.valid


async def test_a_second_acquire_by_one_owner_is_a_deadlock_of_length_one(locks: Front) -> None:
    held = await locks.lock("k").acquire()

    with pytest.raises(Deadlock) as deadlock:
        await locks.lock("k").acquire()
    with pytest.raises(Deadlock):
        await locks.lock("k").acquire(wait=5.0)
    assert [(link.holds, link.waits_for) for link in deadlock.value.cycle] == [("k", "k")]
    assert deadlock.value.cycle[0].owner == held.owner
    assert held.valid
    assert (await locks.inspect("k")).waiters == ()


async def test_a_second_try_by_one_owner_gets_none(locks: Front) -> None:
    held = await locks.lock("k").acquire()

    assert await locks.lock("k").try_acquire() is None
    assert held.valid


@needs("shared")
@pytest.mark.parametrize("reentrant", [False, True])
async def test_a_reader_that_asks_to_write_gets_a_deadlock_at_once(locks: Front, reentrant: bool) -> None:
    rwlock = locks.rwlock("k", reentrant=reentrant)
    reading = await rwlock.read().acquire()

    with pytest.raises(Deadlock):
        await rwlock.write().acquire(wait=5.0)
    assert await rwlock.write().try_acquire() is None
    assert reading.valid
    assert (await locks.inspect("k")).waiters == ()


async def cross(stage: Stage, actors: list[Front]) -> tuple[list[Any], list[asyncio.Task[Any]]]:
    """Each holds its own lock and, but for the last, stands in line for the next one's."""
    held = [await actor.lock(f"k{number}").acquire() for number, actor in enumerate(actors)]
    waiting = [
        await stage.queued(actors[0], f"k{number + 1}", actor.lock(f"k{number + 1}").acquire(wait=60.0))
        for number, actor in enumerate(actors[:-1])
    ]
    return held, waiting


async def one_is_refused(waiting: list[asyncio.Task[Any]], held: list[Any]) -> None:
    """Without a record whoever finds the cycle first is refused, and told who is in it as far as the engine knows."""
    await soon(asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED))
    ((refused, error),) = [(at, task.exception()) for at, task in enumerate(waiting) if task.done()]

    assert isinstance(error, Deadlock)
    assert len(error.cycle) == len(held)
    # Whoever waits for what it holds goes on, and lets go, and so on around.
    for at in range(refused, refused - len(held), -1):
        await held[at].release()
        if at > refused - len(held) + 1:
            await (await soon(waiting[at - 1])).release()


@pytest.mark.any_connection
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("across_clients", [False, True])
async def test_the_claim_that_closes_a_cycle_is_refused_and_told_the_whole_of_it(
    stage: Stage, locks: Front, rival: Front, size: int, across_clients: bool
) -> None:
    clients = [locks, rival] if across_clients else [locks]
    actors = [stage.another(clients[number % len(clients)]) for number in range(size)]
    held, waiting = await cross(stage, actors)
    if not locks.guarantees.deadlock_detection:
        with pytest.raises(NotAcquired):
            await actors[-1].lock("k0").acquire(wait=0.1)
        return

    if not locks.guarantees.recorded:
        await one_is_refused([*waiting, stage.begin(actors[-1].lock("k0").acquire(wait=60.0))], held)
        return

    with pytest.raises(Deadlock) as deadlock:
        await actors[-1].lock("k0").acquire(wait=60.0)
    assert {link.owner for link in deadlock.value.cycle} == {grant.owner for grant in held}
    assert {link.waits_for for link in deadlock.value.cycle} == {f"k{number}" for number in range(size)}
    assert {link.holds for link in deadlock.value.cycle} == {f"k{number}" for number in range(size)}
    assert all(not task.done() for task in waiting)
    for grant in reversed(held):
        await grant.release()
    await soon(asyncio.gather(*waiting))


async def test_a_try_that_would_close_a_cycle_gets_none(stage: Stage, locks: Front, rival: Front) -> None:
    held, waiting = await cross(stage, [locks, rival])

    assert await rival.lock("k0").try_acquire() is None
    await held[1].release()
    assert (await soon(waiting[0])).valid


async def test_a_chain_that_ends_is_no_deadlock(stage: Stage, locks: Front, rival: Front) -> None:
    last = stage.another(rival)
    held, waiting = await cross(stage, [locks, rival, last])
    other = await stage.queued(locks, "k0", stage.another(locks).lock("k0").acquire())

    for grant in reversed(held):
        await grant.release()
    for task in [*reversed(waiting), other]:
        await (await soon(task)).release()


@needs("shared")
async def test_a_cycle_through_a_writer_that_stands_in_line_is_a_deadlock(
    stage: Stage, locks: Front, rival: Front
) -> None:
    """A reader behind a queued writer waits for that writer, though both could read with the holder."""
    reading = await locks.rwlock("k").read().acquire()
    await stage.queued(stage.another(locks), "k", stage.another(rival).lock("k").acquire())
    other = await rival.lock("x").acquire()
    behind = await stage.queued(stage.another(locks), "k", rival.rwlock("k").read().acquire())
    if not locks.guarantees.deadlock_detection:
        with pytest.raises(NotAcquired):
            await locks.lock("x").acquire(wait=0.1)
        return
    if not locks.guarantees.recorded:
        # The engine finds it later, and may let the reader go before the writer instead.
        closing = stage.begin(locks.lock("x").acquire(wait=60.0))
        (first,), _ = await soon(asyncio.wait({behind, closing}, return_when=asyncio.FIRST_COMPLETED))
        assert (await behind).valid if first is behind else isinstance(first.exception(), Deadlock)
        return

    with pytest.raises(Deadlock) as deadlock:
        await locks.lock("x").acquire(wait=30.0)
    assert {reading.owner, other.owner} < {link.owner for link in deadlock.value.cycle}


async def test_a_deadlock_half_way_through_several_locks_leaves_none_of_them(stage: Stage, locks: Front) -> None:
    held = await locks.lock("b").acquire()

    with pytest.raises(Deadlock):
        await locks.lock_all("a", "b", "c").acquire()
    assert held.valid
    assert await stage.in_use(locks, "a", "b", "c") == ["b"]


async def test_an_owner_set_by_the_user_is_one_owner_wherever_it_runs(stage: Stage, locks: Front) -> None:
    """Reentrancy follows the name, through any thread or task."""

    def under(name: str, work: Callable[..., Any]) -> Callable[[], Any]:
        def blocking() -> Any:
            with holdfast.owner(name):
                return work()

        async def task() -> Any:
            with holdfast.owner(name):
                return await work()

        return stage.api.function(task, blocking)

    lock = locks.lock("k", reentrant=True).target
    first = await stage.actor().do(under("batch-7", lock.acquire))
    second = await stage.actor().do(under("batch-7", lock.try_acquire))
    stranger = await stage.actor().do(under("batch-8", lock.try_acquire))

    assert second is not None
    assert second.token == first.token
    assert stranger is None
    assert "batch-7" in first.owner
    for grant in (second, first):
        await locks.actor.do(grant.release)


async def test_an_aio_child_task_is_an_owner_of_its_own(url: str) -> None:
    async with aio.connect(url) as locks:
        held = await locks.lock("k", reentrant=True).acquire()
        again = await locks.lock("k", reentrant=True).try_acquire()
        child = await asyncio.create_task(locks.lock("k", reentrant=True).try_acquire())

        assert again is not None
        assert child is None
        assert held.valid


async def test_an_aio_child_task_inherits_an_owner_that_the_user_set(url: str) -> None:
    async with aio.connect(url) as locks:
        with holdfast.owner("me"):
            held = await locks.lock("k", reentrant=True).acquire()
            child = await asyncio.create_task(locks.lock("k", reentrant=True).try_acquire())

        assert child is not None
        assert child.token == held.token


def test_owners_of_threads_that_ended_do_not_come_again(url: str) -> None:
    """Thread ids are reused; a new thread is not the reentrant owner that an old one was."""
    with holdfast.connect(url) as locks:
        got: list[holdfast.Grant | None] = []
        for _ in range(20):
            thread = threading.Thread(target=lambda: got.append(locks.lock("k", reentrant=True).try_acquire()))
            thread.start()
            thread.join()

        assert [grant is not None for grant in got] == [True] + [False] * 19


async def test_an_owner_is_shown_where_the_grant_is(api: Api, locks: Front) -> None:
    held = await locks.lock("k").acquire()

    assert (await locks.inspect("k")).holders[0].owner == held.owner
