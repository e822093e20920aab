"""What a blocking call borrows comes back, however the call ends."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.runtime import clock
from holdfast.runtime.blocking import run
from holdfast.runtime.call_pool import CallPool
from holdfast.runtime.calls import has_ended, running_call
from tests.faults.children import eventually
from tests.faults.injection import NEVER_RAN, HandledMoments, Injected, Moments, count_moments


class Thing:
    """What the pool lends."""

    def __init__(self) -> None:
        self.users = 0
        self.discarded = False

    def discard(self) -> None:
        self.discarded = True


def borrow(pool: CallPool[Thing]) -> None:
    """One request as an engine makes it: borrow, make what is missing, use, give back."""
    item = pool.take(clock.now() + 5.0)
    assert item is not None
    if item.value is None:
        item.value = Thing()
    thing = item.value
    assert not thing.discarded
    thing.users += 1
    assert thing.users == 1, "two calls use one thing"
    thing.users -= 1
    pool.give(item)


async def call(pool: CallPool[Thing], times: int = 1) -> None:
    for _ in range(times):
        borrow(pool)


def in_use(pool: CallPool[Thing]) -> int:
    return sum(item.is_lent for item in pool.items)


def new_pool(most: int) -> CallPool[Thing]:
    return CallPool(most, Thing.discard)


@pytest.mark.filterwarnings(NEVER_RAN)
@pytest.mark.parametrize("error", [KeyboardInterrupt, Injected])
def test_an_interrupt_at_any_moment_leaves_every_item_to_be_lent(error: type[BaseException]) -> None:
    moments = count_moments(lambda: run(call(new_pool(1))))
    assert moments > 10
    for at in range(moments):
        pool = new_pool(1)
        fault = Moments(at, error)
        try:
            fault.run(lambda pool=pool: run(call(pool)))  # type: ignore[misc]
        except (error, AssertionError) as raised:
            kept = raised  # its traceback keeps the frames of the call alive
        run(call(pool))
        assert in_use(pool) == 0, fault.where
        assert kept is not None


def test_the_same_call_gets_back_what_an_interrupt_took_from_it() -> None:
    pool = new_pool(1)

    async def interrupted_inside() -> None:
        item = pool.take(0.0)
        assert item is not None
        item.value = Thing()
        again = pool.take(0.0)
        assert again is item
        assert again.value is None, "its state is unknown, so it is not lent again"
        pool.give(again)

    run(interrupted_inside())
    assert in_use(pool) == 0


def test_a_waiting_call_gets_what_another_one_gives_back() -> None:
    pool = new_pool(1)
    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(run, call(pool, 300)) for _ in range(8)]:
            done.result()
    assert in_use(pool) == 0
    assert pool._waiting == []


def test_an_item_that_is_in_use_is_not_lent() -> None:
    pool = new_pool(1)
    began, end = threading.Event(), threading.Event()

    async def hold() -> None:
        item = pool.take(0.0)
        assert item is not None
        began.set()
        end.wait()
        pool.give(item)

    async def ask() -> bool:
        return pool.take(clock.now() + 0.6) is not None

    with ThreadPoolExecutor(1) as threads:
        holder = threads.submit(run, hold())
        began.wait()
        assert not run(ask())
        end.set()
        holder.result()


def test_a_waiting_call_gets_what_an_ended_call_left_behind() -> None:
    pool = new_pool(1)

    async def forget() -> None:
        assert pool.take(0.0) is not None

    run(forget())
    began = clock.now()
    run(call(pool))
    assert clock.now() - began < 2.0


def test_a_call_that_runs_is_found_and_one_that_failed_has_ended() -> None:
    seen = []

    async def inner() -> None:
        seen.append(running_call())
        raise KeyError

    async def outer() -> None:
        before = running_call()
        with pytest.raises(KeyError):
            run(inner())
        assert running_call() is before
        assert not has_ended(before)

    assert running_call() is None
    run(outer())
    assert has_ended(seen[0])
    eventually(lambda: running_call() is None, "a call that has ended is still known")


def test_an_item_whose_borrower_has_ended_is_not_counted_as_in_use() -> None:
    pool = new_pool(8)

    async def forget() -> None:
        assert pool.take(0.0) is not None

    for _ in range(7):
        run(forget())
        assert in_use(pool) == 0


def test_an_item_is_lone_unless_a_call_that_runs_has_another_one() -> None:
    pool = new_pool(8)

    async def use_both() -> tuple[bool, bool]:
        first = pool.borrow(None)
        assert first is not None
        first.value = Thing()
        alone = pool.is_lone(first)
        second = pool.borrow(None)
        assert second is not None
        second.value = Thing()
        return alone, pool.is_lone(first)

    assert run(use_both()) == (True, False)


def test_a_call_is_not_overtaken_for_ever_by_threads_that_ask_again_at_once() -> None:
    pool = new_pool(1)
    stop = threading.Event()

    async def again_and_again() -> None:
        while not stop.is_set():
            item = pool.take(clock.now() + 60.0)
            assert item is not None
            pool.give(item)

    with ThreadPoolExecutor(2) as threads:
        busy = [threads.submit(run, again_and_again()) for _ in range(2)]
        try:
            for _ in range(20):
                run(call(pool))
        finally:
            stop.set()
        for each in busy:
            each.result()


def test_a_handler_is_refused_at_once_if_its_own_thread_has_every_item() -> None:
    pool = new_pool(1)

    async def handle() -> bool:
        return pool.take(clock.now() + 600.0) is None

    async def interrupted_inside() -> bool:
        item = pool.take(0.0)
        assert item is not None
        refused = run(handle())
        pool.give(item)
        return refused

    assert run(interrupted_inside())


def test_a_handler_at_any_moment_of_a_step_borrows_or_is_refused() -> None:
    warm = new_pool(1)
    moments = count_moments(lambda: run(call(warm)))
    for at in range(moments):
        pool, taken = new_pool(1), list[bool]()

        async def handle(pool: CallPool[Thing] = pool, taken: list[bool] = taken) -> None:
            item = pool.take(clock.now() + 600.0)
            taken.append(item is not None)
            if item is not None:
                pool.give(item)

        HandledMoments(at, lambda handle=handle: run(handle())).run(lambda pool=pool: run(call(pool)))  # type: ignore[misc]
        assert len(taken) == 1
        assert in_use(pool) == 0
        assert pool._waiting == []
