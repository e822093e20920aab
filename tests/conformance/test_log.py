"""A small append-only log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Conflict, InvalidRequest
from tests.conformance.abilities import needs
from tests.conformance.apis import OVER, Front
from tests.conformance.refusals import declined
from tests.conformance.stage import Stage, eventually, soon


@needs("cells")
async def test_a_new_log_is_empty(locks: Front) -> None:
    assert await locks.log("l").read() == []
    assert await locks.log("l").length() == 0


@pytest.mark.any_connection
@needs("cells")
async def test_events_come_back_in_order(locks: Front, rival: Front) -> None:
    assert await locks.log("l").append(["a", {"b": 1}], expected=0) == 2
    assert await rival.log("l").append([None], expected=2) == 3
    assert await locks.log("l").append(("d",)) == 4

    assert await rival.log("l").read() == ["a", {"b": 1}, None, "d"]
    assert await rival.log("l").read(from_=2) == [None, "d"]
    assert await rival.log("l").read(from_=9) == []
    assert await rival.log("l").length() == 4


@needs("cells")
async def test_an_append_that_expects_another_length_changes_nothing(locks: Front, rival: Front) -> None:
    await locks.log("l").append(["a", "b"])

    with pytest.raises(Conflict, match="length 2") as conflict:
        await rival.log("l").append(["c"], expected=1)
    assert (conflict.value.name, conflict.value.expected, conflict.value.current) == ("l", 1, 2)
    assert await locks.log("l").read() == ["a", "b"]


@needs("cells")
async def test_of_many_who_expect_the_same_length_one_appends(stage: Stage, locks: Front, rival: Front) -> None:
    async def try_to(number: int) -> bool:
        try:
            await stage.another((locks, rival)[number % 2]).log("l").append([number], expected=0)
        except Conflict:
            return False
        return True

    made = await asyncio.gather(*(try_to(number) for number in range(6)))

    assert await locks.log("l").read() == [made.index(True)]
    assert made.count(True) == 1


@needs("cells")
async def test_appends_of_many_are_all_made(stage: Stage, locks: Front, rival: Front) -> None:
    async def write(number: int) -> None:
        log = stage.another((locks, rival)[number % 2]).log("l")
        for step in range(5):
            await log.append([[number, step]])

    await asyncio.wait_for(asyncio.gather(*(write(number) for number in range(6))), 30)
    events = await locks.log("l").read()

    assert sorted(events) == [[number, step] for number in range(6) for step in range(5)]
    for number in range(6):
        assert [step for who, step in events if who == number] == [0, 1, 2, 3, 4]


@needs("cells")
async def test_a_trimmed_log_keeps_its_numbers(locks: Front, rival: Front) -> None:
    await locks.log("l").append(["a", "b", "c"])
    assert await rival.log("l").trim(before=2) == 2
    assert await rival.log("l").trim(before=1) == 2

    assert await locks.log("l").read(from_=2) == ["c"]
    assert await locks.log("l").length() == 3
    assert await locks.log("l").append(["d"], expected=3) == 4
    with pytest.raises(InvalidRequest, match="begins at 2"):
        await locks.log("l").read(from_=1)


@needs("cells")
async def test_a_log_that_is_trimmed_away_goes_on_counting(locks: Front) -> None:
    await locks.log("l").append(["a", "b"])
    assert await locks.log("l").trim(before=99) == 2

    assert await locks.log("l").read(from_=2) == []
    assert await locks.log("l").append(["c"], expected=2) == 3


@needs("cells")
async def test_a_full_log_asks_to_be_trimmed(locks: Front) -> None:
    log = locks.log("l")
    await log.append(["x" * 40_000])
    with pytest.raises(InvalidRequest, match="trim"):
        await log.append(["x" * 40_000])
    await log.trim(before=1)

    assert await log.append(["x" * 40_000], expected=1) == 2


@pytest.mark.any_connection
@needs("cells")
async def test_a_follower_sees_what_was_and_what_comes(stage: Stage, locks: Front, rival: Front) -> None:
    await locks.log("l").append(["a", "b"])
    stream = stage.another(rival).log("l").follow(from_=1)
    seen: list[Any] = []

    async def follow() -> None:
        while True:
            seen.append(await stream.next(within=60.0))

    stage.begin(follow())
    await eventually(lambda: seen == [(1, "b")])
    await locks.log("l").append(["c", "d"])
    await locks.log("other").append(["x"])
    await eventually(lambda: seen == [(1, "b"), (2, "c"), (3, "d")])


@needs("cells")
async def test_a_follower_that_is_closed_is_over(locks: Front) -> None:
    await locks.log("l").append(["a"])
    stream = locks.log("l").follow()
    assert await soon(stream.next()) == (0, "a")
    await stream.stop()

    assert await stream.next() is OVER


@needs("cells")
async def test_events_that_cannot_be_are_refused(locks: Front) -> None:
    for events in ("text", b"bytes", [], 7, None, [object()], [float("nan")], ["x" * 70_000]):
        with pytest.raises(InvalidRequest, match="events"):
            await locks.log("l").append(events)
    assert await locks.log("l").length() == 0


@needs("cells")
async def test_a_number_that_cannot_be_is_refused(locks: Front) -> None:
    log, numbers = locks.log("l"), [-1, True, "1", 1.0]
    assert [each for each in numbers if not await declined(log.append(["a"], expected=each))] == []
    assert [each for each in numbers if not await declined(log.read(from_=each))] == []
    assert [each for each in numbers if not await declined(log.trim(before=each))] == []
