"""An operator's release."""

from __future__ import annotations

import threading
import time

import pytest

from holdfast import LockLost
from tests.conformance.abilities import needs
from tests.conformance.apis import Front
from tests.conformance.stage import Stage, eventually, soon


@pytest.mark.any_connection
@pytest.mark.parametrize("force", [False, True])
@needs("record")
async def test_breaking_makes_the_holders_grant_lost(locks: Front, rival: Front, force: bool) -> None:
    held = await locks.lock("k").acquire()

    assert await rival.break_lock("k", force=force) == 1
    await eventually(lambda: not held.valid)
    with pytest.raises(LockLost, match="broke"):
        held.check()
    assert await rival.lock("k").try_acquire() is not None


@needs("record")
async def test_breaking_returns_when_the_holder_knows(locks: Front, rival: Front) -> None:
    """Its client makes the grant lost first, then releases it: nobody else holds it while it seems valid."""
    held = await locks.lock("k").acquire()
    await rival.break_lock("k")

    assert not held.valid
    assert (await rival.inspect("k")).holders == ()


@pytest.mark.any_connection
@needs("record")
async def test_breaking_lets_the_next_in_line_in(stage: Stage, locks: Front, rival: Front) -> None:
    held = await locks.lock("k").acquire()
    waiting = await stage.queued(rival, "k", rival.lock("k").acquire())
    await stage.another(rival).break_lock("k")
    theirs = await soon(waiting)

    assert theirs.token > held.token
    assert theirs.valid


@needs("record")
async def test_an_owner_whose_lock_was_broken_can_take_it_again_at_once(locks: Front, rival: Front) -> None:
    for _ in range(5):
        await locks.lock("k").acquire()
        await rival.break_lock("k")

        assert (await locks.lock("k").acquire(wait=5.0)).valid
        await rival.break_lock("k")


@needs("record")
async def test_a_broken_lock_is_given_back_after_its_holder_has_heard(stage: Stage, locks: Front, rival: Front) -> None:
    heard, go_on = threading.Event(), threading.Event()

    def stop_working(_: object) -> None:
        heard.set()
        go_on.wait(10.0)

    async def stop_awaiting(_: object) -> None:
        heard.set()
        await eventually(go_on.is_set)

    await locks.lock("k", on_lost=stage.api.function(stop_awaiting, stop_working)).acquire()
    breaking = stage.begin(rival.break_lock("k"))
    await eventually(heard.is_set)
    holders = (await stage.another(rival).inspect("k")).holders
    go_on.set()
    await soon(breaking)

    assert len(holders) == 1


@needs("record")
async def test_breaking_what_nobody_holds_does_nothing(locks: Front) -> None:
    assert await locks.break_lock("k") == 0
    assert await locks.break_lock("k", force=True) == 0


@needs("shared", "record")
async def test_breaking_ends_every_reader(locks: Front, rival: Front) -> None:
    readers = [await client.rwlock("k").read().acquire() for client in (locks, rival)]

    assert await rival.by(rival.actor).break_lock("k") == 2
    assert not any(reader.valid for reader in readers)


@needs("semaphore", "record")
async def test_breaking_takes_the_kind_that_it_is_told(locks: Front, rival: Front) -> None:
    held = await locks.semaphore("k", limit=2).acquire()
    lock = await locks.lock("k").acquire()

    assert await rival.break_lock("k", kind="semaphore") == 1
    assert not held.valid
    assert lock.valid


@pytest.mark.by_turns
@needs("record")
async def test_a_holder_that_does_not_answer_is_removed_one_ttl_later(stage: Stage, locks: Front) -> None:
    quiet = await stage.client(ttl=0.6)
    held = await quiet.lock("k").acquire()
    stage.silence(quiet)
    started = time.monotonic()
    await locks.break_lock("k")

    assert time.monotonic() - started < 0.6 + 1.0 + stage.subject.lag
    assert not held.valid
    assert await locks.lock("k").try_acquire() is not None


@needs("record")
async def test_a_forced_break_does_not_wait_for_the_holder(stage: Stage, locks: Front) -> None:
    quiet = await stage.client(ttl=10.0)
    held = await quiet.lock("k").acquire()
    stage.silence(quiet)
    started = time.monotonic()
    await locks.break_lock("k", force=True)
    after = await locks.lock("k").acquire(wait=0)

    assert time.monotonic() - started < 2.0
    assert after.token > held.token


@needs("record")
async def test_an_owner_may_break_its_own_lock_and_take_it_again(locks: Front) -> None:
    held = await locks.lock("k").acquire()
    await locks.break_lock("k")
    again = await locks.lock("k").acquire(wait=1.0)

    assert again.token > held.token
    assert not held.valid
