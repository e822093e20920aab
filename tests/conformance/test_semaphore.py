"""At most so many grants at once."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import InvalidRequest
from tests.conformance.abilities import needs
from tests.conformance.apis import Front
from tests.conformance.stage import Stage, eventually, soon


@pytest.mark.any_connection
@needs("semaphore")
async def test_a_semaphore_grants_no_more_than_its_limit(stage: Stage, locks: Front, rival: Front) -> None:
    held = [await stage.another(locks).semaphore("s", limit=3).acquire() for _ in range(3)]

    assert all(grant.valid for grant in held)
    assert await rival.semaphore("s", limit=3).try_acquire() is None
    await held[1].release()
    assert await rival.semaphore("s", limit=3).try_acquire() is not None


@needs("semaphore")
async def test_slots_are_distinct_and_used_again(stage: Stage, locks: Front, rival: Front) -> None:
    held = [await stage.another(locks).semaphore("s", limit=3).acquire() for _ in range(3)]
    assert {grant.slot for grant in held} == {0, 1, 2}
    freed = held[1].slot
    await held[1].release()
    again = await rival.semaphore("s", limit=3).acquire()

    assert again.slot == freed
    assert again.token > held[1].token


@needs("semaphore")
async def test_one_owner_may_take_several_permits(locks: Front) -> None:
    semaphore = locks.semaphore("s", limit=2)
    held = [await semaphore.acquire(wait=1.0) for _ in range(2)]

    assert held[0].slot != held[1].slot
    assert await semaphore.try_acquire() is None


@pytest.mark.any_connection
@needs("semaphore")
async def test_permits_go_to_those_who_came_first(stage: Stage, locks: Front, rival: Front) -> None:
    held = [await locks.semaphore("s", limit=2).acquire() for _ in range(2)]
    waiting = [
        await stage.queued(locks, "s", stage.another(rival).semaphore("s", limit=2).acquire(), kind="semaphore")
        for _ in range(3)
    ]
    await held[0].release()
    first = await soon(waiting[0])

    assert first.slot == held[0].slot
    await held[1].release()
    assert (await soon(waiting[1])).slot == held[1].slot
    assert not waiting[2].done()


@needs("semaphore")
async def test_another_limit_than_the_one_in_use_is_refused(locks: Front, rival: Front) -> None:
    held = await locks.semaphore("s", limit=2).acquire()

    with pytest.raises(InvalidRequest) as refused:
        await rival.semaphore("s", limit=3).acquire(wait=1.0)
    with pytest.raises(InvalidRequest):
        await rival.semaphore("s", limit=1).try_acquire()
    assert refused.value.argument == "limit"
    assert held.valid
    assert (await locks.inspect("s", kind="semaphore")).waiters == ()


@needs("semaphore")
async def test_a_semaphore_that_nobody_uses_may_have_another_limit(locks: Front) -> None:
    await (await locks.semaphore("s", limit=2).acquire()).release()

    assert await locks.semaphore("s", limit=1).try_acquire() is not None


@pytest.mark.by_turns
@needs("semaphore")
async def test_never_more_at_once_than_the_limit(stage: Stage, locks: Front, rival: Front) -> None:
    inside = most = 0
    full = asyncio.Event()

    async def work(client: Front) -> None:
        nonlocal inside, most
        for _ in range(3):
            async with client.semaphore("s", limit=3):
                inside += 1
                most = max(most, inside)
                if inside == 3:
                    full.set()
                await soon(full.wait())
                await asyncio.sleep(0.01)  # one too many could come in
                inside -= 1

    await soon(asyncio.gather(*(work(stage.another((locks, rival)[number % 2])) for number in range(8))))
    assert most == 3


@needs("semaphore")
async def test_a_cycle_through_one_of_several_permit_holders_is_no_deadlock(
    stage: Stage, locks: Front, rival: Front
) -> None:
    """A permit is an OR: another holder may still let go."""
    third = stage.another(rival)
    permits = [await client.semaphore("s", limit=2).acquire() for client in (locks, third)]
    lock = await rival.lock("k").acquire()
    waiting = await stage.queued(locks, "k", locks.lock("k").acquire())
    permit = await stage.queued(locks.by(stage.actor()), "s", rival.semaphore("s", limit=2).acquire(), kind="semaphore")
    await permits[1].release()

    assert (await soon(permit)).valid
    await lock.release()
    assert (await soon(waiting)).valid


@pytest.mark.by_turns
@needs("semaphore")
async def test_a_dead_permit_holder_frees_its_slot(stage: Stage, locks: Front) -> None:
    dying = await stage.client(ttl=0.4)
    held = await dying.semaphore("s", limit=1).acquire()
    stage.silence(dying)
    after = await locks.semaphore("s", limit=1).acquire(wait=10.0)

    assert after.slot == held.slot
    assert after.token > held.token
    await eventually(lambda: not held.valid)
