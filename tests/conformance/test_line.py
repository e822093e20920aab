"""Standing in line: fairness, wake-up, and what is left of those who went."""

from __future__ import annotations

import asyncio
import time

import pytest

from holdfast import NotAcquired
from holdfast.bench.counting import Counter
from tests.conformance.apis import Front
from tests.conformance.stage import Stage, eventually, soon

pytestmark = pytest.mark.any_connection


async def test_first_come_first_served(stage: Stage, locks: Front, rival: Front) -> None:
    held = await locks.lock("k").acquire()
    order: list[int] = []

    async def take_a_turn(number: int, client: Front) -> None:
        grant = await client.lock("k").acquire()
        order.append(number)
        await grant.release()

    waiting = []
    for number in range(6):
        client = stage.another((locks, rival)[number % 2])
        waiting.append(await stage.queued(locks, "k", take_a_turn(number, client)))
    await held.release()
    await soon(asyncio.gather(*waiting))

    assert sorted(order) == list(range(6))
    if locks.guarantees.fair:
        assert order == list(range(6))


async def test_nobody_overtakes_the_line(stage: Stage, locks: Front, rival: Front) -> None:
    held = await locks.lock("k").acquire()
    waiting = await stage.queued(locks, "k", rival.lock("k").acquire())
    await held.release()
    overtaking = await locks.lock("k").try_acquire()

    if locks.guarantees.fair:
        assert overtaking is None
    if overtaking is not None:
        await overtaking.release()
    assert (await soon(waiting)).valid


async def test_a_release_wakes_the_next_one_by_notification(stage: Stage, locks: Front, rival: Front) -> None:
    """The safety net behind it looks every two seconds at best. Where it is the only way, the lock comes by it."""
    waits = []
    for _ in range(5):
        held = await locks.lock("k").acquire()
        waiting = await stage.queued(locks, "k", rival.lock("k").acquire())
        released = time.monotonic()
        await held.release()
        theirs = await soon(waiting)
        waits.append(time.monotonic() - released)
        await theirs.release()

    if locks.guarantees.notified:
        assert sorted(waits)[2] < 0.5


@pytest.mark.by_turns
async def test_a_waiter_that_is_notified_does_not_ask_meanwhile(stage: Stage, locks: Front, rival: Front) -> None:
    """A heartbeat, and a look at those who may have died, are all that a client sends in a second."""
    held = await locks.lock("k").acquire()
    waiting = await stage.queued(locks, "k", rival.lock("k").acquire())
    counter, began = Counter(), time.monotonic()
    counter.around_client(rival.target._core)
    if locks.guarantees.notified:
        await eventually(lambda: time.monotonic() - began > 1.0)
        assert counter.requests <= 3 * (time.monotonic() - began)
    else:
        await eventually(lambda: counter.requests > 3)
    await held.release()
    assert (await soon(waiting)).valid


async def test_a_grant_that_was_waited_for_has_a_higher_token(stage: Stage, locks: Front, rival: Front) -> None:
    held = await locks.lock("k").acquire()
    waiting = await stage.queued(locks, "k", rival.lock("k").acquire())
    await held.release()

    assert (await soon(waiting)).token > held.token


async def test_a_waiter_that_gives_up_leaves_no_place_behind(locks: Front, rival: Front) -> None:
    held = await rival.lock("k").acquire()

    with pytest.raises(NotAcquired):
        await locks.lock("k").acquire(wait=0.1)

    assert (await rival.inspect("k")).waiters == ()
    await held.release()
    assert await rival.lock("k").try_acquire() is not None


@pytest.mark.by_turns
async def test_a_waiter_that_gives_up_holds_up_nobody_behind_it(stage: Stage, locks: Front, rival: Front) -> None:
    held = await rival.lock("k").acquire()
    brief = await stage.queued(rival, "k", locks.lock("k").acquire(wait=0.3))
    patient = await stage.queued(rival, "k", stage.another(locks).lock("k").acquire())
    with pytest.raises(NotAcquired):
        await soon(brief)
    await held.release()

    assert (await soon(patient)).valid


async def test_a_try_leaves_no_place_behind(locks: Front, rival: Front) -> None:
    held = await rival.lock("k").acquire()
    assert await locks.lock("k").try_acquire() is None

    assert (await rival.inspect("k")).waiters == ()
    assert held.valid


@pytest.mark.parametrize("wait", [0.0, 0.2])
async def test_the_answer_comes_when_the_wait_is_over(locks: Front, rival: Front, wait: float) -> None:
    held = await rival.lock("k").acquire()
    await (await locks.lock("before").acquire()).release()  # to connect takes its own time
    started = time.monotonic()
    with pytest.raises(NotAcquired) as missed:
        await locks.lock("k").acquire(wait=wait)

    assert wait <= time.monotonic() - started < wait + 1.0
    assert wait <= missed.value.waited < wait + 1.0
    assert held.valid


@pytest.mark.by_turns
async def test_one_deadline_runs_through_a_wait_in_which_the_holder_changes(
    stage: Stage, locks: Front, rival: Front
) -> None:
    held = await rival.lock("k").acquire()
    ahead = await stage.queued(rival, "k", stage.another(rival).lock("k").acquire())
    started = time.monotonic()
    behind = await stage.queued(rival, "k", locks.lock("k").acquire(wait=0.5))
    if locks.guarantees.fair:
        await held.release()
        assert (await soon(ahead)).valid

    with pytest.raises(NotAcquired):
        await soon(behind)
    assert 0.5 <= time.monotonic() - started < 1.5


async def test_a_waiter_is_told_its_place(stage: Stage, locks: Front, rival: Front) -> None:
    held = await rival.lock("k").acquire()
    places: list[int] = []
    first = await stage.queued(rival, "k", stage.another(locks).lock("k").acquire())
    lock = locks.lock("k", on_wait=lambda place: places.append(place.position))
    second = await stage.queued(rival, "k", lock.acquire())

    # Where there is no line, nobody stands behind anybody.
    await eventually(lambda: places[:1] == [2 if locks.guarantees.fair else 1])
    await held.release()
    for waiting in asyncio.as_completed([first, second]):
        await (await soon(waiting)).release()


async def test_the_line_is_seen_by_others_if_there_is_one(stage: Stage, locks: Front, rival: Front) -> None:
    held = await rival.lock("k").acquire()
    waiting = [await stage.queued(rival, "k", stage.another(locks).lock("k").acquire()) for _ in range(2)]
    info = await rival.inspect("k")

    assert len(info.holders) == 1
    assert [waiter.token for waiter in info.waiters] == [None] * (2 if locks.guarantees.fair else 0)
    await held.release()
    for each in asyncio.as_completed(waiting):
        await (await soon(each)).release()


async def test_closing_a_client_wakes_its_waiters(stage: Stage, locks: Front, rival: Front) -> None:
    held = await rival.lock("k").acquire()
    waiting = await stage.queued(rival, "k", locks.lock("k").acquire())
    await locks.by(stage.actor()).close()

    with pytest.raises(Exception, match="closed"):
        await soon(waiting)
    assert (await rival.inspect("k")).waiters == ()
    assert held.valid
