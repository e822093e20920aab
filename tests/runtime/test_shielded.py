"""Shielded work under asyncio: it runs in the caller's task, and no cancellation reaches it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.runtime.asyncio import AsyncioIo, within


class NoPort:
    """Nothing is sent here."""

    async def call(self, request: Any, until: float) -> Any:
        raise AssertionError("nothing is sent in these tests")


@pytest.fixture
async def io() -> AsyncioIo:
    return AsyncioIo(NoPort(), asyncio.get_running_loop())


@pytest.fixture
async def gate() -> asyncio.Future[str]:
    return asyncio.get_running_loop().create_future()


async def turn(times: int = 3) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def test_what_the_work_returns_is_returned(io: AsyncioIo, gate: asyncio.Future[str]) -> None:

    async def work() -> str:
        await asyncio.sleep(0)
        return await gate

    caller = asyncio.create_task(io.shielded(work()))
    await turn()
    gate.set_result("done")

    assert await caller == "done"


async def test_a_cancelled_caller_finishes_the_work_and_stops_then(io: AsyncioIo, gate: asyncio.Future[str]) -> None:
    finished = []

    async def work() -> None:
        finished.append(await gate)

    caller = asyncio.create_task(io.shielded(work()))
    await turn()
    caller.cancel("enough")
    await turn()
    caller.cancel()
    await turn()
    assert not caller.done()
    assert not gate.cancelled()
    gate.set_result("done")

    with pytest.raises(asyncio.CancelledError):
        await caller
    assert finished == ["done"]


async def test_a_cancellation_between_two_turns_does_not_reach_the_work(io: AsyncioIo) -> None:
    turns = []

    async def work() -> None:
        for number in range(5):
            await asyncio.sleep(0)
            turns.append(number)

    caller = asyncio.create_task(io.shielded(work()))
    await turn(2)
    caller.cancel()

    with pytest.raises(asyncio.CancelledError):
        await caller
    assert turns == [0, 1, 2, 3, 4]


async def test_a_cancellation_after_the_answer_but_before_the_task_runs_does_not_reach_the_work(
    io: AsyncioIo, gate: asyncio.Future[str]
) -> None:
    heard = []

    async def work() -> None:
        heard.append(await gate)
        await asyncio.sleep(0)
        heard.append("the end")

    caller = asyncio.create_task(io.shielded(work()))
    await turn()
    gate.set_result("done")
    caller.cancel()

    with pytest.raises(asyncio.CancelledError):
        await caller
    assert heard == ["done", "the end"]


async def test_the_error_of_the_work_comes_out_unless_its_caller_was_stopped(
    io: AsyncioIo, gate: asyncio.Future[str]
) -> None:

    async def work() -> None:
        await gate

    free, cancelled = (asyncio.create_task(io.shielded(work())) for _ in range(2))
    await turn()
    cancelled.cancel()
    gate.set_exception(ConnectionError("gone"))

    with pytest.raises(ConnectionError, match="gone"):
        await free
    with pytest.raises(asyncio.CancelledError):
        await cancelled


async def test_a_limit_around_shielded_work_strikes_when_it_is_done(io: AsyncioIo, gate: asyncio.Future[str]) -> None:
    finished = []

    async def work() -> None:
        asyncio.get_running_loop().call_later(0.05, gate.set_result, "done")
        finished.append(await gate)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await io.shielded(work())
    assert finished == ["done"]


async def test_a_limit_inside_shielded_work_strikes_at_once(io: AsyncioIo, gate: asyncio.Future[str]) -> None:

    async def endless() -> None:
        await gate

    async def work() -> None:
        await within(0.001, endless())

    with pytest.raises(TimeoutError):
        await io.shielded(work())
    assert gate.cancelled()


async def test_a_caller_that_is_cancelled_takes_limited_work_with_it(gate: asyncio.Future[str]) -> None:
    async def endless() -> None:
        await gate

    caller = asyncio.create_task(within(60, endless()))
    await turn()
    caller.cancel()

    with pytest.raises(asyncio.CancelledError):
        await caller
    assert gate.cancelled()
