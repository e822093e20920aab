"""What a task borrows comes back, however the task ends."""

from __future__ import annotations

import asyncio

from holdfast.runtime import clock
from holdfast.runtime.task_turns import TaskPool, TaskTurns


class Interrupted(Exception):
    """What a signal handler raises in the loop's thread."""


async def test_a_task_that_an_exception_has_ended_loses_its_turn_to_the_next_one() -> None:
    turns = TaskTurns(asyncio.get_running_loop())

    async def interrupted() -> None:
        assert await turns.take(clock.now() + 5.0)
        raise Interrupted

    (error,) = await asyncio.gather(asyncio.create_task(interrupted()), return_exceptions=True)
    assert isinstance(error, Interrupted)
    assert await turns.take(clock.now() + 5.0)


async def test_a_task_that_comes_back_has_lost_what_an_exception_took_from_it() -> None:
    discarded: list[str] = []
    pool: TaskPool[str] = TaskPool(1, discarded.append, asyncio.get_running_loop())
    item = await pool.take(clock.now())
    assert item is not None
    item.value = "in the middle of something"
    again = await pool.take(clock.now())
    assert again is item
    assert again.value is None
    assert discarded == ["in the middle of something"]


async def test_turns_are_given_in_the_order_in_which_they_were_asked_for() -> None:
    turns, order = TaskTurns(asyncio.get_running_loop()), list[int]()

    async def one(number: int) -> None:
        assert await turns.take(clock.now() + 5.0)
        order.append(number)
        await asyncio.sleep(0)
        turns.give()

    await asyncio.gather(*(one(number) for number in range(20)))
    assert order == list(range(20))


async def test_a_task_that_was_cancelled_in_the_queue_is_not_waited_for() -> None:
    turns = TaskTurns(asyncio.get_running_loop())
    assert await turns.take(clock.now())
    waiting = [asyncio.create_task(turns.take(clock.now() + 5.0)) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.wait({waiting[0]})
    turns.give()
    assert await waiting[1]


async def test_a_turn_that_is_not_given_in_time_is_not_had() -> None:
    turns = TaskTurns(asyncio.get_running_loop())
    assert await turns.take(clock.now())
    assert not await asyncio.create_task(turns.take(clock.now() + 0.02))
