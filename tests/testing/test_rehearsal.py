"""Locks that are lost when the test says so: blocking and asyncio."""

from __future__ import annotations

import asyncio
import threading

import pytest

import holdfast
from holdfast import aio
from holdfast.errors import EngineUnavailable, InvalidRequest, LockLost, NotAcquired, StaleToken
from holdfast.testing import Rehearsal, assert_fenced


class Store:
    """A resource that somebody wrote: with a fence, or without."""

    def __init__(self, fenced: bool) -> None:
        self.fenced, self.value, self.highest = fenced, 0, 0

    def read(self) -> int:
        return self.value

    def write(self, value: int, grant: holdfast.Grant | aio.Grant) -> None:
        if self.fenced:
            if grant.token < self.highest:
                raise StaleToken("account", grant.token, self.highest)
            self.highest = grant.token
        self.value = value


def test_a_jump_of_the_clock_does_not_cost_a_live_holder_its_lock(rehearsal: Rehearsal) -> None:
    with holdfast.connect(ttl=5.0) as locks, locks.lock("k") as grant:
        before = rehearsal.clock.now()
        rehearsal.advance(120.0)

        assert rehearsal.clock.now() >= before + 120.0
        assert grant.valid
        assert grant.remaining > 0.0


def test_a_paused_holder_loses_its_lock_and_is_told_when_it_goes_on(rehearsal: Rehearsal) -> None:
    with holdfast.connect(ttl=5.0) as locks, holdfast.connect(ttl=5.0) as other:
        grant = locks.lock("k").acquire()
        with rehearsal.pause(locks):
            rehearsal.advance(6.0)
            taken = other.lock("k").acquire(wait=1.0)
            assert not grant.lost.is_set()
        assert grant.lost.wait(10.0)
        assert taken.token > grant.token
        with pytest.raises(LockLost):
            grant.release()
        taken.release()


def test_a_grant_can_be_paused_by_itself(rehearsal: Rehearsal) -> None:
    with holdfast.connect(ttl=5.0) as locks:
        grant = locks.lock("k").acquire()
        with rehearsal.pause(grant):
            rehearsal.advance(6.0)
        assert grant.lost.wait(10.0)


def test_an_expired_grant_is_lost_at_once_and_loudly(rehearsal: Rehearsal) -> None:
    told: list[holdfast.Grant] = []
    with holdfast.connect() as locks:
        called = threading.Event()

        def on_lost(lost: holdfast.Grant) -> None:
            told.append(lost)
            called.set()

        grant = locks.lock("k", on_lost=on_lost).acquire()
        rehearsal.expire(grant)

        assert not grant.valid
        assert called.wait(10.0)
        assert told == [grant]
        with pytest.raises(LockLost):
            grant.check()


def test_what_is_taken_over_still_looks_valid_to_its_holder(rehearsal: Rehearsal) -> None:
    with holdfast.connect() as locks:
        grant = locks.lock("k").acquire()
        taken = rehearsal.take_over("k")

        assert grant.valid
        grant.check()
        assert taken.token > grant.token
        assert [party.app for party in locks.inspect("k").holders] == ["rival"]
        with pytest.raises(LockLost):
            grant.release()


def test_a_permit_can_be_taken_over(rehearsal: Rehearsal) -> None:
    with holdfast.connect() as locks:
        permit = locks.semaphore("gpu", 1).acquire()

        assert rehearsal.take_over("gpu", kind="semaphore").token > permit.token


def test_a_leader_can_be_replaced(rehearsal: Rehearsal) -> None:
    with holdfast.connect() as locks:
        grant = locks.election("scheduler", value="us").campaign()
        taken = rehearsal.take_over("scheduler", kind="election")

        leader = locks.election("scheduler").leader()
        assert leader is not None
        assert (leader.party.app, leader.token) == ("rival", taken.token)
        assert taken.token > grant.token


def test_a_lock_of_another_namespace_is_taken_over_there(rehearsal: Rehearsal) -> None:
    with holdfast.connect(namespace="billing") as locks:
        grant = locks.lock("k").acquire()
        taken = rehearsal.take_over("k")

        assert [party.token for party in locks.inspect("k").holders] == [taken.token]
        assert taken.token > grant.token


def test_what_nobody_holds_cannot_be_taken_over(rehearsal: Rehearsal) -> None:
    with pytest.raises(AssertionError, match="nobody holds 'k'"):
        rehearsal.take_over("k")


def test_a_lost_reply_to_an_acquire_leaves_nothing_held(rehearsal: Rehearsal) -> None:
    with holdfast.connect() as locks, holdfast.connect() as other:
        rehearsal.drop_next_reply("acquire")
        with pytest.raises(EngineUnavailable) as caught:
            locks.lock("k").acquire()

        assert caught.value.outcome == "unknown"
        other.lock("k").acquire(wait=5.0).release()


def test_a_lost_reply_to_a_release_is_unknown_and_the_lock_is_free(rehearsal: Rehearsal) -> None:
    with holdfast.connect() as locks, holdfast.connect() as other:
        grant = locks.lock("k").acquire()
        rehearsal.drop_next_reply("release")
        with pytest.raises(EngineUnavailable):
            grant.release()

        other.lock("k").acquire(wait=5.0).release()


def test_a_reply_of_no_known_kind_cannot_be_dropped(rehearsal: Rehearsal) -> None:
    with pytest.raises(InvalidRequest, match="acquire, release"):
        rehearsal.drop_next_reply("heartbeat")


def test_a_wait_is_over_as_soon_as_the_clock_says_so(rehearsal: Rehearsal) -> None:
    with holdfast.connect(ttl=60.0) as locks, holdfast.connect(ttl=60.0) as other:
        held = locks.lock("k").acquire()
        outcome: list[Exception] = []
        waits = threading.Event()

        def wait() -> None:
            try:
                other.lock("k", on_wait=lambda _: waits.set()).acquire(wait=600.0)
            except NotAcquired as error:
                outcome.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        assert waits.wait(10.0)
        rehearsal.advance(601.0)
        thread.join(10.0)

        assert [type(error) for error in outcome] == [NotAcquired]
        held.release()


def test_a_client_of_another_engine_is_not_part_of_it(rehearsal: Rehearsal) -> None:
    with holdfast.connect("memory://elsewhere") as locks:
        with pytest.raises(holdfast.HoldfastError, match="not part of this rehearsal"), rehearsal.pause(locks):
            raise AssertionError("it was paused")


def add(locks: holdfast.Client, store: Store, amount: int) -> None:
    """Somebody's critical section."""
    with locks.lock("account") as grant:
        store.write(store.read() + amount, grant)


def test_a_fenced_critical_section_passes(rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(fenced=True)
    with holdfast.connect() as locks:

        def read() -> int:
            store.write(100, rehearsal.take_over("account"))
            return 0

        monkeypatch.setattr(store, "read", read)
        refusal = assert_fenced(lambda: add(locks, store, 10))

    assert isinstance(refusal, StaleToken)
    assert store.value == 100


def test_an_unfenced_critical_section_fails(rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(fenced=False)
    with holdfast.connect() as locks:
        grant = locks.lock("account").acquire()
        rehearsal.take_over("account")
        with pytest.raises(AssertionError, match="does not check the token"):
            assert_fenced(lambda: store.write(1, grant))


def test_a_look_at_the_grant_is_no_fence(rehearsal: Rehearsal) -> None:
    with holdfast.connect() as locks:
        grant = locks.lock("k").acquire()
        rehearsal.expire(grant)
        with pytest.raises(AssertionError, match="holder's own look"):
            assert_fenced(grant.check)


def test_a_store_may_refuse_in_its_own_words(rehearsal: Rehearsal) -> None:
    def write() -> None:
        raise PermissionError("409")

    assert isinstance(assert_fenced(write, PermissionError), PermissionError)
    with pytest.raises(PermissionError):
        assert_fenced(write)


def test_a_function_that_is_wrapped_loses_the_lock_once(rehearsal: Rehearsal) -> None:
    store = Store(fenced=True)
    with holdfast.connect() as locks:
        grant = locks.lock("account").acquire()
        read = rehearsal.taking_over("account", store.read)

        assert (read(), read()) == (0, 0)
        assert grant.valid
        assert [party.app for party in locks.inspect("account").holders] == ["rival"]


async def test_asyncio_a_body_is_cancelled_when_its_grant_expires(rehearsal: Rehearsal) -> None:
    async with aio.connect() as locks:
        went_on = False

        async def work() -> None:
            nonlocal went_on
            async with locks.lock("k") as grant:
                rehearsal.expire(grant)
                await asyncio.sleep(10.0)
                went_on = True

        with pytest.raises(LockLost):
            await work()
        assert not went_on


async def test_asyncio_a_jump_keeps_live_holders_and_ends_waits(rehearsal: Rehearsal) -> None:
    async with aio.connect(ttl=5.0) as locks, aio.connect(ttl=5.0) as other:
        async with locks.lock("k") as grant:
            waits = asyncio.Event()
            waiter = asyncio.create_task(other.lock("k", on_wait=lambda _: waits.set()).acquire(wait=600.0))
            await asyncio.wait_for(waits.wait(), 10.0)
            await asyncio.to_thread(rehearsal.advance, 601.0)
            with pytest.raises(NotAcquired):
                await asyncio.wait_for(waiter, 10.0)

            assert grant.valid


async def test_asyncio_a_write_is_fenced_or_not(rehearsal: Rehearsal) -> None:
    async def write(store: Store, grant: aio.Grant) -> None:
        store.write(1, grant)

    fenced, unfenced = Store(fenced=True), Store(fenced=False)
    async with aio.connect() as locks:
        grant = await locks.lock("account").acquire()
        fenced.write(2, rehearsal.take_over("account"))

        await assert_fenced(lambda: write(fenced, grant))
        with pytest.raises(AssertionError, match="does not check the token"):
            await assert_fenced(lambda: write(unfenced, grant))


async def test_asyncio_a_lost_reply_leaves_nothing_held(rehearsal: Rehearsal) -> None:
    async with aio.connect() as locks, aio.connect() as other:
        rehearsal.drop_next_reply()
        with pytest.raises(EngineUnavailable):
            await locks.lock("k").acquire()

        await (await other.lock("k").acquire(wait=5.0)).release()
