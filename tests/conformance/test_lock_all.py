"""Several locks at once: all or none."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import InvalidRequest, LockLost, NotAcquired
from tests.conformance.abilities import needs
from tests.conformance.apis import Front
from tests.conformance.stage import Stage, eventually, soon
from tests.conformance.witness import Witness


@pytest.mark.any_connection
async def test_all_are_held(locks: Front, rival: Front) -> None:
    grants = await locks.lock_all("b", "a", "c").acquire()

    assert sorted(grants) == ["a", "b", "c"]
    assert len(grants) == 3
    assert all(grants[name].valid and grants[name].name == name for name in grants)
    assert grants.valid
    for name in ("a", "b", "c"):
        assert await rival.lock(name).try_acquire() is None


@pytest.mark.any_connection
async def test_all_or_none(stage: Stage, locks: Front, rival: Front) -> None:
    held = await rival.lock("b").acquire()

    with pytest.raises(NotAcquired):
        await locks.lock_all("a", "b", "c").acquire(wait=0.1)
    assert await locks.lock_all("a", "b", "c").try_acquire() is None
    assert await stage.in_use(rival, "a", "b", "c") == ["b"]
    assert (await rival.inspect("b")).waiters == ()
    assert held.valid


async def test_a_name_given_twice_is_taken_once(locks: Front, rival: Front) -> None:
    grants = await locks.lock_all("a", "b", "a").acquire(wait=1.0)

    assert sorted(grants) == ["a", "b"]
    await grants.release()
    assert await rival.lock_all("b", "a").try_acquire() is not None


async def test_opposite_orders_do_not_deadlock(stage: Stage, locks: Front, rival: Front) -> None:
    async def work(client: Front, *names: str) -> None:
        for _ in range(10):
            async with client.lock_all(*names):
                await asyncio.sleep(0)

    await soon(
        asyncio.gather(
            work(locks, "a", "b", "c"), work(rival, "c", "b", "a"), work(stage.another(locks), "b", "c", "a")
        )
    )


@needs("events")
async def test_they_are_taken_in_order_and_released_in_reverse(stage: Stage, locks: Front, rival: Front) -> None:
    witness = await Witness.begin(stage, rival)
    granted = [("granted", "a"), ("granted", "b"), ("granted", "c")]
    async with locks.lock_all("b", "a", "c"):
        # Where a watcher reads the grant itself, one that is over before that is told together with its end.
        await witness.sees(*granted)

    await witness.sees(*granted, ("released", "c"), ("released", "b"), ("released", "a"))


async def test_they_are_lost_together(stage: Stage, locks: Front, rival: Front) -> None:
    grants = await locks.lock_all("a", "b", "c").acquire()
    await stage.take_away("b", rival)

    for name in ("a", "b", "c"):
        await eventually(lambda name=name: not grants[name].valid)  # type: ignore[misc]
        await eventually(grants[name].lost.is_set)
    assert not grants.valid
    with pytest.raises(LockLost):
        grants.check()
    with pytest.raises(LockLost):
        await grants.release()

    async def free() -> bool:
        return await stage.in_use(rival, "a", "b", "c") == []

    await eventually(free)


@pytest.mark.by_turns
async def test_one_deadline_for_all_of_them(stage: Stage, locks: Front, rival: Front) -> None:
    """Each wait is what is left of the whole."""
    held = [await rival.lock(name).acquire() for name in ("a", "b")]
    waiting = await stage.queued(rival, "a", locks.lock_all("a", "b").acquire(wait=0.6))
    await held[0].release()

    with pytest.raises(NotAcquired) as missed:
        await soon(waiting)
    assert missed.value.waited < 1.6
    assert (await rival.inspect("a")).holders == ()


async def test_no_name_at_all_is_refused(locks: Front) -> None:
    with pytest.raises(InvalidRequest):
        locks.lock_all()


async def test_a_with_releases_all_of_them(stage: Stage, locks: Front, rival: Front) -> None:
    with pytest.raises(KeyError):
        async with locks.lock_all("a", "b"):
            raise KeyError
    assert await stage.in_use(rival, "a", "b") == []
