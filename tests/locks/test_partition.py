"""Joins and leaves of one member that meet each other, and what it is told of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast.locks.partition import LONGEST_PERIOD, PERIOD, period
from holdfast.model import Epoch
from holdfast.verify.servers.redis import RedisServer
from tests.conformance.stage import eventually as eventually_async
from tests.faults.children import PATIENCE, eventually

GROUP = "workers"


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"memory://partition-{request.node.name}"


@pytest.fixture
def locks(url: str) -> Iterator[holdfast.Client]:
    with holdfast.connect(url) as client:
        yield client


@pytest.fixture
def rival(url: str) -> Iterator[holdfast.Client]:
    with holdfast.connect(url) as client:
        yield client


class Held:
    """Keeps the answer to the next request of some verbs back until it is let go."""

    def __init__(self, verbs: Any, verb: str = "enter") -> None:
        self.came, self.go = threading.Event(), threading.Event()
        self._ask = getattr(verbs, verb)
        setattr(verbs, verb, self.ask)

    async def ask(self, *args: Any) -> Any:
        reply = await self._ask(*args)
        if not self.came.is_set():
            self.came.set()
            await self.wait()
        return reply

    async def wait(self) -> None:
        assert self.go.wait(PATIENCE)


class HeldInLoop(Held):
    """The same for a task."""

    async def wait(self) -> None:
        await eventually_async(self.go.is_set)


def claims(client: holdfast.Client) -> int:
    return len(client.inspect(GROUP, kind="partition").holders)


def broken_while_its_keeper_is_held(locks: holdfast.Client, rival: holdfast.Client) -> tuple[Any, Held]:
    """A member that was removed, and whose keeper, which takes its place again, is kept from the answer."""
    member = locks.partition(GROUP, "a")
    member.join()
    held = Held(locks._core.start_keeper().verbs)
    rival.break_lock(GROUP, kind="partition", force=True)
    assert held.came.wait(PATIENCE)
    return member, held


def begun(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def waits(member: Any) -> bool:
    """Whether somebody waits for the join that is under way."""
    return bool(member._front.stay._waiting)


# A join that meets a join


def test_a_join_waits_for_one_that_is_under_way(locks: holdfast.Client) -> None:
    member = locks.partition(GROUP, "a")
    held, owned = Held(locks._core.verbs), []

    def join() -> None:
        member.join()
        owned.append(member.owns("k"))

    first = begun(join)
    assert held.came.wait(PATIENCE)
    second = begun(join)
    eventually(lambda: owned or waits(member), "the second join neither waits nor returns")
    held.go.set()
    first.join()
    second.join()
    assert owned == [True, True]


async def test_a_task_that_joins_waits_for_one_that_does(url: str) -> None:
    async with aio.connect(url) as locks:
        member = locks.partition(GROUP, "a")

        async def join() -> bool:
            await member.join()
            return member.owns("k")

        assert await asyncio.gather(*(join() for _ in range(4))) == [True] * 4
        assert len((await locks.inspect(GROUP, kind="partition")).holders) == 1


async def test_whoever_waited_for_a_join_that_was_cancelled_joins_by_itself(url: str) -> None:
    async with aio.connect(url) as locks:
        member = locks.partition(GROUP, "a")
        held = HeldInLoop(locks._core.verbs)
        first = asyncio.ensure_future(member.join())
        await eventually_async(held.came.is_set)
        second = asyncio.ensure_future(member.join())
        await eventually_async(lambda: waits(member))
        first.cancel()

        await second
        assert first.cancelled()
        assert member.owns("k")
        assert len((await locks.inspect(GROUP, kind="partition")).holders) == 1


# A join that meets a leave


def test_a_join_that_was_overtaken_by_a_leave_and_a_join_leaves_no_ghost(locks: holdfast.Client) -> None:
    member = locks.partition(GROUP, "a")
    held = Held(locks._core.verbs)
    late = begun(member.join)
    assert held.came.wait(PATIENCE)
    member.leave()
    member.join()
    held.go.set()
    late.join()

    assert claims(locks) == 1
    assert member.owns("k")
    member.leave()
    assert claims(locks) == 0


async def test_a_task_whose_join_was_overtaken_leaves_no_ghost(url: str) -> None:
    async with aio.connect(url) as locks:
        member = locks.partition(GROUP, "a")
        held = HeldInLoop(locks._core.verbs)
        late = asyncio.ensure_future(member.join())
        await eventually_async(held.came.is_set)
        await member.leave()
        await member.join()
        held.go.set()
        await late

        assert len((await locks.inspect(GROUP, kind="partition")).holders) == 1
        assert member.owns("k")


def test_a_keeper_that_comes_back_after_a_leave_and_a_join_leaves_no_ghost(
    locks: holdfast.Client, rival: holdfast.Client
) -> None:
    member, held = broken_while_its_keeper_is_held(locks, rival)
    member.leave()
    member.join()
    held.go.set()

    eventually(lambda: claims(rival) == 1, "two claims of one member")
    eventually(lambda: member.owns("k"), "its own claim is not the one that is left")
    member.leave()
    eventually(lambda: claims(rival) == 0, "a ghost is left")


def test_a_late_look_of_an_earlier_stay_is_not_acted_under(locks: holdfast.Client) -> None:
    member = locks.partition(GROUP, "a")
    member.join()
    earlier = member._front.stay
    assert earlier is not None
    held = Held(locks._core.start_keeper().verbs, "inspect")
    assert held.came.wait(PATIENCE)
    due = earlier.errand.due
    member.leave()
    member.join()
    assert member._front.stay is not None
    member._front.stay.errand.due = float("inf")  # its own look would mend it
    epoch = member.epoch
    held.go.set()

    eventually(lambda: earlier.errand.due > due, "the late look does not end")
    assert member.epoch == epoch is not None


def test_threads_that_join_and_leave_one_member_leave_no_ghost_and_a_member_that_looks() -> None:
    with RedisServer() as server, holdfast.connect(server.url) as locks, holdfast.connect(server.url) as rival:
        member = locks.partition(GROUP, "a")

        def loop() -> None:
            for _ in range(30):
                member.join()
                member.leave()

        for thread in [begun(loop) for _ in range(3)]:
            thread.join()
        member.leave()
        eventually(lambda: claims(rival) == 0, "a ghost is left")
        eventually(lambda: not locks._core.errands, "somebody looks for a member that has left")

        member.join()
        rival.partition(GROUP, "b").join()
        eventually(lambda: member.members() == ("a", "b"), "it does not look")


def test_a_member_whose_place_was_lost_joins_without_waiting_for_its_keeper(
    locks: holdfast.Client, rival: holdfast.Client
) -> None:
    member, held = broken_while_its_keeper_is_held(locks, rival)
    member.join()

    assert member.owns("k")
    held.go.set()
    eventually(lambda: claims(rival) == 1, "two claims of one member")


# What it is told


def test_a_slow_callback_is_over_before_the_next_begins(locks: holdfast.Client, rival: holdfast.Client) -> None:
    told: list[tuple[str, int]] = []
    go = threading.Event()

    def slow(epoch: Epoch | None) -> None:
        assert epoch is not None
        told.append(("began", len(epoch.members)))
        assert len(epoch.members) > 1 or go.wait(PATIENCE)
        told.append(("ended", len(epoch.members)))

    member = locks.partition(GROUP, "a", on_change=slow)
    member.join()
    rival.partition(GROUP, "b").join()
    eventually(lambda: len(told) > 1 or member._front._telling._calls, "the second epoch is not told")
    go.set()

    eventually(lambda: len(told) == 4, "not everything was told")
    assert told == [("began", 1), ("ended", 1), ("began", 2), ("ended", 2)]


async def test_an_awaited_callback_is_over_before_the_next_begins(url: str) -> None:
    told: list[tuple[str, int]] = []
    go = asyncio.Event()

    async def slow(epoch: Epoch | None) -> None:
        assert epoch is not None
        told.append(("began", len(epoch.members)))
        if len(epoch.members) == 1:
            await go.wait()
        told.append(("ended", len(epoch.members)))

    async with aio.connect(url) as locks, aio.connect(url) as rival:
        member = locks.partition(GROUP, "a", on_change=slow)
        await member.join()
        await rival.partition(GROUP, "b").join()
        await eventually_async(lambda: len(told) > 1 or bool(member._front._telling._calls))
        go.set()

        await eventually_async(lambda: len(told) == 4)
        assert told == [("began", 1), ("ended", 1), ("began", 2), ("ended", 2)]


async def test_a_callback_that_raises_does_not_stop_the_next(url: str) -> None:
    told: list[int] = []
    raised: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context["exception"]))

    def fail(epoch: Epoch | None) -> None:
        assert epoch is not None
        told.append(len(epoch.members))
        raise LookupError(len(epoch.members))

    async with aio.connect(url) as locks, aio.connect(url) as rival:
        await locks.partition(GROUP, "a", on_change=fail).join()
        await rival.partition(GROUP, "b").join()
        await eventually_async(lambda: told == [1, 2])
    assert [type(error) for error in raised] == [LookupError, LookupError]


def test_who_has_left_is_told_nothing_more(locks: holdfast.Client, rival: holdfast.Client) -> None:
    told: list[Epoch | None] = []
    go = threading.Event()

    def slow(epoch: Epoch | None) -> None:
        told.append(epoch)
        assert go.wait(PATIENCE)

    member = locks.partition(GROUP, "a", on_change=slow)
    member.join()
    eventually(lambda: told, "the first epoch is not told")
    rival.partition(GROUP, "b").join()
    telling = member._front._telling
    eventually(lambda: telling._calls, "the second epoch is not told")
    member.leave()
    go.set()

    eventually(lambda: not telling._busy, "it is still being told")
    assert [epoch and epoch.members for epoch in told] == [("a",)]


# How often it looks


def test_a_larger_group_looks_less_often_and_never_too_seldom_for_the_promise() -> None:
    periods = [period(members) for members in (1, 50, 100, 200, 400, 10_000)]

    assert periods == sorted(periods)
    assert periods[0] < PERIOD * 1.01
    assert periods[2] > PERIOD * 1.2
    assert periods[-1] == LONGEST_PERIOD < 1.0


def test_a_member_looks_as_often_as_its_group_is_large(locks: holdfast.Client, rival: holdfast.Client) -> None:
    member = locks.partition(GROUP, "a")
    member.join()
    errand = member._front.stay.errand  # type: ignore[union-attr]
    assert errand.every == period(1)
    for number in range(20):
        rival.partition(GROUP, f"b{number}").join()

    eventually(lambda: errand.every == period(21), "it looks as if it were alone")
