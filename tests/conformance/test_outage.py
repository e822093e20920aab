"""The engine cannot be reached for a while. Run for every engine that something can come between."""

from __future__ import annotations

import asyncio
import time

import pytest

from holdfast import EngineUnavailable, HoldfastError, LockLost, NotAcquired
from tests.conformance.apis import Front
from tests.conformance.stage import Stage, eventually, soon

pytestmark = [pytest.mark.needs_of_subject("outage"), pytest.mark.any_connection]


@pytest.mark.by_turns
async def test_a_grant_is_in_danger_before_it_is_lost(stage: Stage) -> None:
    client = await stage.client(ttl=2.0)
    held = await client.lock("k").acquire()
    lost = held.lost
    with stage.outage():
        await eventually(lambda: held.in_danger or lost.is_set())
        assert held.in_danger
        assert held.valid
        assert not lost.is_set()
        held.check()

        await eventually(lost.is_set)
        assert not held.valid
        assert not held.in_danger
        with pytest.raises(LockLost):
            held.check()


@pytest.mark.by_turns
async def test_a_grant_that_was_in_danger_is_well_again_after_the_outage(stage: Stage) -> None:
    client = await stage.client(ttl=4.0)
    held = await client.lock("k").acquire()
    with stage.outage():
        await eventually(lambda: held.in_danger)

    await eventually(lambda: not held.in_danger)
    held.check()


@pytest.mark.by_turns
async def test_the_answer_comes_within_a_second_after_the_wait(stage: Stage, locks: Front, rival: Front) -> None:
    held = await rival.lock("k").acquire()
    first = await locks.lock("other").acquire()
    fresh = await stage.client()

    async def answered(client: Front) -> float:
        started = time.monotonic()
        with pytest.raises((EngineUnavailable, NotAcquired)):
            await client.lock("k").acquire(wait=0.2)
        return time.monotonic() - started

    with stage.outage():
        took = await asyncio.gather(answered(locks), answered(fresh))
    assert max(took) < 0.2 + 1.0 + 0.25
    assert held.valid
    assert first.valid


@pytest.mark.by_turns
async def test_a_waiter_whose_wait_ends_in_an_outage_is_answered_in_time_and_leaves_no_place(
    stage: Stage, locks: Front, rival: Front
) -> None:
    held = await rival.lock("k").acquire()
    started = time.monotonic()
    waiting = await stage.queued(rival, "k", locks.lock("k").acquire(wait=0.5))
    with stage.outage():
        with pytest.raises(EngineUnavailable) as unavailable:
            await soon(waiting)
        assert time.monotonic() - started < 1.5 + 0.25
        assert unavailable.value.outcome == "unknown"
        assert isinstance(unavailable.value, ConnectionError)

    looker = rival.by(stage.actor())

    async def gone() -> bool:
        return bool((await looker.inspect("k")).waiters == ())

    await eventually(gone)
    assert held.valid


@pytest.mark.by_turns
async def test_a_waiter_stays_in_line_through_an_outage(stage: Stage, locks: Front, rival: Front) -> None:
    held = await rival.lock("k").acquire()
    waiting = await stage.queued(rival, "k", locks.lock("k").acquire(wait=30.0))
    with stage.outage():
        with pytest.raises(HoldfastError):
            await stage.another(locks).lock("k").acquire(wait=0.0)
    assert not waiting.done()
    await held.release()

    assert (await soon(waiting)).valid


@pytest.mark.by_turns
async def test_a_release_that_was_not_confirmed_is_finished_later(stage: Stage, rival: Front) -> None:
    locks = await stage.client()
    held = await locks.lock("k").acquire()
    with stage.outage(), stage.hurry(locks):
        with pytest.raises(EngineUnavailable):
            await held.release()
    theirs = await rival.lock("k").acquire(wait=10.0)

    assert not held.valid
    assert theirs.valid
    with pytest.raises(HoldfastError):
        held.check()


@pytest.mark.by_turns
async def test_a_release_that_was_not_confirmed_may_be_repeated(stage: Stage, rival: Front) -> None:
    locks = await stage.client()
    held = await locks.lock("k").acquire()
    with stage.outage(), stage.hurry(locks):
        with pytest.raises(EngineUnavailable):
            await held.release()
    await held.release()

    assert (await rival.lock("k").acquire(wait=10.0)).valid


@pytest.mark.by_turns
async def test_requests_of_other_clients_go_on_after_an_outage(stage: Stage, locks: Front, rival: Front) -> None:
    with stage.outage():
        with pytest.raises(EngineUnavailable) as unavailable:
            await locks.lock("k").acquire(wait=0.1)
    assert unavailable.value.engine

    await asyncio.gather(locks.lock("a").acquire(wait=5.0), rival.lock("b").acquire(wait=5.0))
