"""What the body of a `with` and of an `async with` sees of a loss: the one thing in which the two APIs differ."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest

import holdfast
from holdfast import LockLost, aio
from tests.conformance.engines import Subject
from tests.conformance.stage import Breaker, eventually, in_line


@pytest.fixture
def blocking(subject: Subject, url: str) -> Iterator[holdfast.Client]:
    with holdfast.connect(url, ttl=subject.ttl) as client:
        yield client


@pytest.fixture
async def tasks(subject: Subject, url: str) -> AsyncIterator[aio.Client]:
    async with aio.connect(url, ttl=subject.ttl) as client:
        yield client


def see_the_loss(grant: holdfast.Grant) -> None:
    assert grant.lost.wait(10.0)


async def never() -> None:
    await asyncio.sleep(30)
    raise AssertionError("the body was not cancelled")


def test_a_blocking_body_sees_the_loss_at_check(blocking: holdfast.Client, breaker: Breaker) -> None:
    went_on = False

    def body() -> None:
        nonlocal went_on
        with blocking.lock("k") as grant:
            lost = grant.lost
            breaker("k")
            assert lost.wait(10.0)
            grant.check()
            went_on = True

    with pytest.raises(LockLost):
        body()
    assert not went_on


def test_a_blocking_body_sees_the_loss_at_its_end(blocking: holdfast.Client, breaker: Breaker) -> None:
    went_on = False

    def body() -> None:
        nonlocal went_on
        with blocking.lock("k") as grant:
            breaker("k")
            see_the_loss(grant)
            went_on = True

    with pytest.raises(LockLost):
        body()
    assert went_on


def test_a_loss_is_seen_at_the_end_of_a_blocking_body_that_ends_at_once(
    blocking: holdfast.Client, breaker: Breaker
) -> None:
    with pytest.raises(LockLost):
        with blocking.lock("k"):
            breaker("k")


def test_what_a_blocking_body_raises_is_not_masked_by_the_loss(blocking: holdfast.Client, breaker: Breaker) -> None:
    def body() -> None:
        with blocking.lock("k") as grant:
            breaker("k")
            see_the_loss(grant)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as raised:
        body()
    assert "lost" in "".join(raised.value.__notes__)


async def test_an_aio_body_is_cancelled_and_the_loss_comes_out(tasks: aio.Client, breaker: Breaker) -> None:
    started = time.monotonic()

    async def body() -> None:
        async with tasks.lock("k"):
            await asyncio.to_thread(breaker, "k")
            await never()

    with pytest.raises(LockLost) as lost:
        await body()
    assert lost.value.name == "k"
    assert time.monotonic() - started < 10.0


async def test_an_aio_task_lives_on_after_its_body_was_cancelled(tasks: aio.Client, breaker: Breaker) -> None:
    async def body() -> None:
        async with tasks.lock("k"):
            await asyncio.to_thread(breaker, "k")
            await never()

    with pytest.raises(LockLost):
        await body()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)
    async with tasks.lock("k") as again:
        assert again.valid


async def test_what_an_aio_body_raises_is_not_masked_by_the_loss(tasks: aio.Client, breaker: Breaker) -> None:
    async def body() -> None:
        async with tasks.lock("k"):
            try:
                await asyncio.to_thread(breaker, "k")
                await never()
            except asyncio.CancelledError:
                raise KeyError("mine") from None

    with pytest.raises(KeyError, match="mine"):
        await body()


async def test_a_cancellation_of_an_aio_body_from_outside_stays_one(tasks: aio.Client) -> None:
    inside = asyncio.Event()

    async def hold() -> None:
        async with tasks.lock("k"):
            inside.set()
            await never()

    holding = asyncio.create_task(hold())
    await asyncio.wait_for(inside.wait(), 10.0)
    holding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holding
    await (await tasks.lock("k").acquire(wait=0)).release()


async def test_an_aio_body_under_several_locks_is_cancelled_when_one_is_lost(
    tasks: aio.Client, breaker: Breaker
) -> None:
    async def body() -> None:
        async with tasks.lock_all("a", "b", "c"):
            await asyncio.to_thread(breaker, "b")
            await never()

    with pytest.raises(LockLost):
        await body()


async def test_an_aio_body_that_waits_for_another_lock_is_cancelled_there(
    tasks: aio.Client, blocking: holdfast.Client, breaker: Breaker
) -> None:
    held = blocking.lock("other").acquire()

    async def body() -> None:
        async with tasks.lock("k"):
            breaking.append(asyncio.create_task(asyncio.to_thread(breaker, "k")))
            await tasks.lock("other").acquire()

    breaking: list[asyncio.Task[None]] = []
    with pytest.raises(LockLost) as lost:
        await body()
    await breaking[0]
    assert lost.value.name == "k"
    assert blocking.inspect("other").waiters == ()
    held.release()


@pytest.mark.parametrize("turns", range(6))
async def test_an_aio_acquire_that_is_cancelled_leaves_neither_lock_nor_place(
    tasks: aio.Client, blocking: holdfast.Client, turns: int
) -> None:
    """Cancelled after any number of turns of the loop; every await point by itself is tried elsewhere."""
    held = blocking.lock("k").acquire()
    waiting = asyncio.create_task(tasks.lock("k").acquire())
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert blocking.inspect("k").waiters == ()
    held.release()
    again = blocking.lock("k").try_acquire()
    assert again is not None
    again.release()


@pytest.mark.by_turns
async def test_an_aio_acquire_that_is_cancelled_while_its_turn_comes_leaves_no_lock(
    tasks: aio.Client, blocking: holdfast.Client
) -> None:
    for _ in range(20):
        held = blocking.lock("k").acquire()
        waiting = asyncio.create_task(tasks.lock("k").acquire())
        await eventually(lambda: in_line(blocking, "k", tasks))
        releasing = asyncio.create_task(asyncio.to_thread(held.release))
        await asyncio.sleep(0)
        waiting.cancel()
        await releasing
        with pytest.raises(asyncio.CancelledError):
            await waiting
        again = blocking.lock("k").acquire(wait=5.0)
        again.release()


async def test_an_aio_client_may_be_awaited_and_entered(url: str) -> None:
    client = await aio.connect(url)
    async with client as same:
        assert same is client
    async with aio.connect(url) as other:
        assert (await other.inspect("k")).holders == ()
