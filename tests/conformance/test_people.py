"""What people see: inspect, list, watch; and what ends by itself: notes and max_hold."""

from __future__ import annotations

import os
import socket
import time

import pytest

from holdfast import Deadlock, LockLost, NotAcquired
from tests.conformance.abilities import needs
from tests.conformance.apis import Front
from tests.conformance.stage import Stage, eventually, soon
from tests.conformance.witness import Witness


async def test_a_lock_that_nobody_uses_has_neither_holders_nor_waiters(locks: Front) -> None:
    info = await locks.inspect("k")

    assert (info.kind, info.name, info.holders, info.waiters) == ("lock", "k", (), ())


@pytest.mark.any_connection
async def test_inspect_shows_who_holds_and_who_waits_in_order(stage: Stage, locks: Front, rival: Front) -> None:
    before = time.time()
    held = await locks.lock("k", note="nightly run").acquire()
    await stage.queued(locks, "k", rival.lock("k", note="first").acquire())
    await stage.queued(locks, "k", stage.another(rival).lock("k", note="second").acquire())
    info = await stage.another(rival).inspect("k")

    holder = info.holders[0]
    assert holder.mode == "exclusive"
    assert before - 5 < holder.since < time.time() + 5
    if locks.guarantees.fair:
        assert [waiter.token for waiter in info.waiters] == [None, None]
    if not locks.guarantees.recorded:
        return  # those are of another client
    assert (holder.owner, holder.token, holder.note, holder.app) == (held.owner, held.token, "nightly run", "locks")
    assert (holder.host, holder.pid) == (socket.gethostname(), os.getpid())
    assert holder.thread
    line = [("first", "rival"), ("second", "rival")] if locks.guarantees.fair else []
    assert [(waiter.note, waiter.app) for waiter in info.waiters] == line


@needs("semaphore")
async def test_inspect_shows_permits(locks: Front, rival: Front) -> None:
    held = [await client.semaphore("s", limit=3).acquire() for client in (locks, rival)]
    info = await locks.inspect("s", kind="semaphore")

    assert info.limit == 3
    assert [holder.slot for holder in info.holders] == [grant.slot for grant in held]
    assert (await locks.inspect("s")).holders == ()


@needs("record")
@pytest.mark.any_connection
async def test_list_shows_every_lock_in_use_under_a_prefix(locks: Front, rival: Front) -> None:
    held = [await client.lock(name).acquire() for client, name in (
        (locks, "db"), (rival, "db/users"), (locks, "db/users/7"), (rival, "dbx"), (locks, "other"),
    )]  # fmt: skip
    released = await locks.lock("db/released").acquire()
    await released.release()

    assert sorted(info.name for info in await rival.list()) == ["db", "db/users", "db/users/7", "dbx", "other"]
    assert sorted(info.name for info in await rival.list("db/")) == ["db/users", "db/users/7"]
    assert [info.holders[0].token for info in await locks.list("other")] == [held[-1].token]


@needs("events")
@pytest.mark.any_connection
async def test_a_watcher_is_told_of_queueing_granting_and_releasing_in_order(
    stage: Stage, locks: Front, rival: Front
) -> None:
    witness = await Witness.begin(stage, locks)
    held = await locks.lock("k").acquire()
    waiting = await stage.queued(locks, "k", rival.lock("k").acquire())
    await held.release()
    theirs = await soon(waiting)

    story = [("granted", "k"), ("queued", "k"), ("released", "k"), ("granted", "k")]
    await witness.sees(*(event for event in story if event[0] in locks.guarantees.events))
    events = witness.events("k")
    assert [event.token for event in events if event.type == "granted"] == [held.token, theirs.token]
    assert [event.owner for event in events if event.type == "granted"] == [held.owner, theirs.owner]
    assert all(event.kind == "lock" for event in events)


@needs("events")
@pytest.mark.by_turns
async def test_a_watcher_is_told_that_a_dead_holders_lock_expired(stage: Stage, locks: Front) -> None:
    witness = await Witness.begin(stage, locks)
    dying = await stage.client(ttl=0.4)
    held = await dying.lock("k").acquire()
    stage.silence(dying)
    after = await locks.lock("k").acquire(wait=10.0)

    story = [("granted", "k"), ("queued", "k"), ("expired", "k"), ("granted", "k")]
    await witness.sees(*(event for event in story if event[0] in locks.guarantees.events))
    assert after.token > held.token


@needs("events", "record")
async def test_a_watcher_is_told_that_a_lock_was_broken(stage: Stage, locks: Front, rival: Front) -> None:
    assert "broken" in locks.guarantees.events
    witness = await Witness.begin(stage, locks)
    held = await locks.lock("k").acquire()
    await rival.break_lock("k")

    await eventually(lambda: ("broken", "k") in witness.told())
    assert witness.told()[0] == ("granted", "k")
    assert not held.valid


@needs("events")
async def test_a_watcher_is_told_of_a_deadlock(stage: Stage, locks: Front, rival: Front) -> None:
    assert ("deadlock" in locks.guarantees.events) == locks.guarantees.deadlock_detection
    if not locks.guarantees.deadlock_detection:
        return
    witness = await Witness.begin(stage, locks)
    held = [await locks.lock("a").acquire(), await rival.lock("b").acquire()]
    await stage.queued(stage.another(locks), "b", locks.lock("b").acquire())
    with pytest.raises(Deadlock):
        await rival.lock("a").acquire()

    await eventually(lambda: ("deadlock", "a") in witness.told())
    assert all(grant.valid for grant in held)


@needs("events")
async def test_a_watch_begins_with_its_with(locks: Front, rival: Front) -> None:
    """What happens before the first look is not missed."""
    async with rival.watch("k") as events:
        held = await locks.lock("k").acquire()
        await held.release()
        seen = [await events.next() for _ in range(2)]

    assert [(event.type, event.token) for event in seen] == [("granted", held.token), ("released", held.token)]


@needs("events")
async def test_a_watcher_of_a_prefix_is_told_of_nothing_else(stage: Stage, locks: Front, rival: Front) -> None:
    stream = stage.another(rival).watch("db/")
    first = stage.begin(stream.next())

    async def use_all() -> None:
        for name in ("db", "dbx", "other/db", "db/users"):
            await (await locks.lock(name).acquire()).release()

    while not first.done():
        await use_all()
    await use_all()

    events = [await first] + [await stream.next() for _ in range(2)]
    assert {event.name for event in events} == {"db/users"}


@pytest.mark.by_turns
async def test_a_hold_that_lasts_too_long_ends(locks: Front, rival: Front) -> None:
    ended: list[str] = []
    held = await locks.lock("k", max_hold=0.4, on_lost=lambda grant: ended.append(grant.name)).acquire()
    assert held.remaining <= 0.4
    started = time.monotonic()
    after = await rival.lock("k").acquire(wait=10.0)

    assert time.monotonic() - started < 0.4 + 1.0
    assert not held.valid
    assert after.token > held.token
    await eventually(lambda: ended == ["k"])
    await eventually(held.lost.is_set)
    with pytest.raises(LockLost):
        await held.release()
    assert after.valid


async def test_a_hold_that_ended_in_time_is_no_loss(locks: Front, rival: Front) -> None:
    held = await locks.lock("k", max_hold=5.0).acquire()
    await held.release()

    assert await rival.lock("k").try_acquire() is not None


async def test_a_refusal_names_who_holds_the_lock(locks: Front, rival: Front) -> None:
    held = await locks.lock("k", note="nightly").acquire()
    with pytest.raises(NotAcquired) as missed:
        await rival.lock("k").acquire(wait=0.01)

    (holder,) = missed.value.holders
    assert f"pid {holder.pid}" in str(missed.value)
    assert "'k'" in str(missed.value)
    if locks.guarantees.recorded:
        assert (holder.note, holder.pid) == ("nightly", os.getpid())
    assert held.valid
