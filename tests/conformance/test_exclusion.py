"""Exclusion, tokens and release."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import LockLost, NotAcquired, NotHeld
from tests.conformance.abilities import needs
from tests.conformance.apis import Front
from tests.conformance.stage import Stage, soon
from tests.faults.children import eventually

pytestmark = pytest.mark.any_connection


async def test_one_holds_and_the_other_does_not(locks: Front, rival: Front) -> None:
    held = await locks.lock("k").acquire()

    assert await rival.lock("k").try_acquire() is None
    with pytest.raises(NotAcquired) as missed:
        await rival.lock("k").acquire(wait=0.05)

    assert isinstance(missed.value, TimeoutError)
    assert len(missed.value.holders) == 1
    if locks.guarantees.recorded:
        assert missed.value.holders[0].owner == held.owner


async def test_a_grant_says_what_was_granted(locks: Front) -> None:
    held = await locks.lock("a/b").acquire()

    assert (held.name, held.valid, held.in_danger, held.slot) == ("a/b", True, False, None)
    assert 0 < held.token < 2**53
    assert 0 < held.remaining < 10.0
    assert not held.lost.is_set()
    held.check()


async def test_names_do_not_get_in_each_others_way(locks: Front, rival: Front) -> None:
    first = await locks.lock("k1").acquire()
    second = await rival.lock("k2").try_acquire()

    assert first.valid
    assert second is not None


async def test_two_owners_of_one_client_exclude_each_other(stage: Stage, locks: Front) -> None:
    held = await locks.lock("k").acquire()
    other = stage.another(locks)

    assert await other.lock("k").try_acquire() is None
    await held.release()
    assert await other.lock("k").try_acquire() is not None


async def test_namespaces_do_not_see_each_other(stage: Stage, locks: Front) -> None:
    elsewhere = await stage.client(namespace="elsewhere")
    held = await locks.lock("k").acquire()

    assert (await elsewhere.inspect("k")).holders == ()
    theirs = await elsewhere.lock("k").try_acquire()
    assert theirs is not None
    await theirs.release()
    assert await stage.in_use(elsewhere, "k") == []
    assert held.valid
    assert await stage.in_use(locks, "k") == ["k"]


@needs("record")
async def test_a_break_stays_in_its_namespace(stage: Stage, locks: Front) -> None:
    elsewhere = await stage.client(namespace="elsewhere")
    held = await locks.lock("k").acquire()
    await elsewhere.lock("k").acquire()
    await elsewhere.break_lock("k", force=True)

    assert await elsewhere.list() == []
    assert held.valid
    assert [info.name for info in await locks.list()] == ["k"]


@needs("cells")
async def test_cells_stay_in_their_namespace(stage: Stage, locks: Front) -> None:
    elsewhere = await stage.client(namespace="elsewhere")
    await locks.cell("c").set(1)

    assert await elsewhere.cell("c").get() == (None, 0)


async def test_kinds_have_key_spaces_of_their_own(locks: Front, rival: Front) -> None:
    lock = await locks.lock("k").acquire()

    assert await rival.election("k", value="v").campaign(wait=0) is not None
    assert lock.valid


async def test_tokens_grow_across_releases(locks: Front, rival: Front) -> None:
    tokens = []
    for _ in range(3):
        for client in (locks, rival):
            held = await client.lock("k").acquire()
            tokens.append(held.token)
            await held.release()

    assert tokens == sorted(set(tokens))


async def test_tokens_grow_when_a_lock_was_taken_away(stage: Stage, locks: Front, rival: Front) -> None:
    held = await locks.lock("k").acquire()
    await stage.take_away("k", rival, force=True)
    after = await rival.lock("k").acquire()

    assert after.token > held.token


async def test_tokens_grow_when_every_client_has_gone(stage: Stage, locks: Front) -> None:
    held = await locks.lock("k").acquire()
    await locks.close()
    later = await stage.client()

    assert (await later.lock("k").acquire()).token > held.token


async def test_a_release_lets_the_next_one_in(locks: Front, rival: Front) -> None:
    held = await locks.lock("k").acquire()
    await held.release()

    assert not held.valid
    assert held.remaining == 0.0
    assert await rival.lock("k").try_acquire() is not None


async def test_releasing_twice_says_that_it_is_not_held(locks: Front, rival: Front) -> None:
    held = await locks.lock("k").acquire()
    await held.release()
    theirs = await rival.lock("k").acquire()

    with pytest.raises(NotHeld):
        await held.release()
    with pytest.raises(NotHeld):
        held.check()
    assert theirs.valid
    assert await locks.lock("k").try_acquire() is None


async def test_releasing_a_lost_grant_says_so_and_changes_nothing(stage: Stage, locks: Front, rival: Front) -> None:
    held = await locks.lock("k").acquire()
    await stage.take_away("k", rival, force=True)
    theirs = await rival.lock("k").acquire()

    with pytest.raises(LockLost) as lost:
        await held.release()
    assert (lost.value.name, lost.value.token) == ("k", held.token)
    theirs.check()
    assert [holder.token for holder in (await rival.inspect("k")).holders] == [theirs.token]


async def test_a_grant_may_be_released_by_another_thread_or_task(stage: Stage, locks: Front, rival: Front) -> None:
    held = await locks.lock("k").acquire()
    await held.by(stage.actor()).release()

    assert await rival.lock("k").try_acquire() is not None


async def test_a_with_holds_in_its_body_and_releases_after_it(locks: Front, rival: Front) -> None:
    async with locks.lock("k") as held:
        held.check()
        assert await rival.lock("k").try_acquire() is None
    assert await rival.lock("k").try_acquire() is not None


async def test_a_with_never_runs_its_body_without_the_lock(locks: Front, rival: Front) -> None:
    held = await rival.lock("k").acquire()
    ran = False

    with pytest.raises(NotAcquired):
        async with locks.lock("k", wait=0.05):
            ran = True
    assert not ran
    assert held.valid


async def test_a_with_releases_when_its_body_raises(locks: Front, rival: Front) -> None:
    with pytest.raises(KeyError):
        async with locks.lock("k"):
            raise KeyError
    assert await rival.lock("k").try_acquire() is not None


async def test_the_wait_of_the_call_goes_before_that_of_the_lock(stage: Stage, locks: Front, rival: Front) -> None:
    held = await rival.lock("k").acquire()
    waiting = await stage.queued(rival, "k", locks.lock("k", wait=0.01).acquire(wait=None))
    await held.release()

    assert (await soon(waiting)).valid


async def test_a_wait_of_zero_takes_what_is_free_and_no_more(locks: Front, rival: Front) -> None:
    held = await locks.lock("k").acquire(wait=0)
    with pytest.raises(NotAcquired):
        await rival.lock("k").acquire(wait=0)
    assert held.valid


@pytest.mark.by_turns
async def test_renew_moves_the_deadline(locks: Front) -> None:
    held = await locks.lock("k").acquire()
    before = held.remaining
    # By more than a renewal and a look at the clock can take.
    await asyncio.to_thread(eventually, lambda: held.remaining < before - 0.5, "the deadline does not come nearer")
    lowest = held.remaining
    await held.renew()

    assert held.remaining > lowest


@pytest.mark.by_turns
async def test_many_actors_on_one_client_count_exactly(stage: Stage, locks: Front) -> None:
    count = 0

    async def increment(client: Front) -> None:
        nonlocal count
        for _ in range(5):
            async with client.lock("counter"):
                seen = count
                await asyncio.sleep(0)
                count = seen + 1

    await asyncio.wait_for(asyncio.gather(*(increment(stage.another(locks)) for _ in range(32))), 60)
    assert count == 160
