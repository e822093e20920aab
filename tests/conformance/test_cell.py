"""Compare-and-swap on a versioned value."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast import Conflict, InvalidRequest
from holdfast.bench.counting import Counter
from tests.conformance.abilities import needs
from tests.conformance.apis import OVER, Front
from tests.conformance.refusals import declined
from tests.conformance.stage import Stage, eventually, soon


@needs("cells")
async def test_a_cell_that_was_never_set_has_no_value(locks: Front) -> None:
    assert await locks.cell("c").get() == (None, 0)


@pytest.mark.any_connection
@needs("cells")
async def test_what_was_set_comes_back(locks: Front, rival: Front) -> None:
    values = [{"a": [1, 2.5, None, True]}, "text", "ümlaut", 7, False, None, [], b"", b"\x00\xff", b"x" * 65_536]
    for number, value in enumerate(values):
        version = await locks.cell(f"c{number}").set(value)

        assert await rival.cell(f"c{number}").get() == (value, version)
        assert version > 0


@needs("cells")
async def test_a_write_that_expects_the_current_version_is_made(locks: Front, rival: Front) -> None:
    first = await locks.cell("c").set("a", version=0)
    second = await rival.cell("c").set("b", version=first)

    assert second > first
    assert await locks.cell("c").get() == ("b", second)


@needs("cells")
async def test_a_write_that_expects_another_version_changes_nothing(locks: Front, rival: Front) -> None:
    first = await locks.cell("c").set("a")
    second = await rival.cell("c").set("b")

    with pytest.raises(Conflict) as conflict:
        await locks.cell("c").set("c", version=first)
    with pytest.raises(Conflict):
        await locks.cell("c").set("c", version=0)
    assert (conflict.value.name, conflict.value.expected, conflict.value.current) == ("c", first, second)
    assert await locks.cell("c").get() == ("b", second)


@needs("cells")
async def test_a_delete_that_expects_another_version_changes_nothing(locks: Front) -> None:
    version = await locks.cell("c").set("a")

    with pytest.raises(Conflict):
        await locks.cell("c").delete(version=version + 1)
    assert await locks.cell("c").get() == ("a", version)
    await locks.cell("c").delete(version=version)
    assert (await locks.cell("c").get())[0] is None


@needs("cells")
async def test_versions_grow_across_a_delete(locks: Front) -> None:
    cell = locks.cell("c")
    first = await cell.set("a")
    await cell.delete()
    assert await cell.get() == (None, 0)
    second = await cell.set("b", version=0)

    assert second > first
    with pytest.raises(Conflict):
        await cell.set("c", version=first)


@pytest.mark.any_connection
@needs("cells")
async def test_updates_of_many_are_all_made(stage: Stage, locks: Front, rival: Front) -> None:
    async def add(client: Front) -> None:
        for _ in range(5):
            await client.cell("c").update(lambda value: (value or 0) + 1)

    await asyncio.wait_for(asyncio.gather(*(add(stage.another((locks, rival)[n % 2])) for n in range(6))), 30)
    assert (await locks.cell("c").get())[0] == 30


@needs("cells")
async def test_update_returns_what_was_written(locks: Front) -> None:
    value, version = await locks.cell("c").update(lambda value: [value])

    assert value == [None]
    assert await locks.cell("c").get() == ([None], version)


@pytest.mark.any_connection
@needs("cells")
async def test_a_watch_shows_the_value_now_and_after_every_change(stage: Stage, locks: Front, rival: Front) -> None:
    await locks.cell("c").set("a")
    stream = stage.another(rival).cell("c").watch()
    seen: list[Any] = []

    async def watch() -> None:
        while True:
            seen.append((await stream.next(within=60.0))[0])

    stage.begin(watch())
    await eventually(lambda: seen == ["a"])
    await locks.cell("c").set("b")
    await eventually(lambda: seen == ["a", "b"])
    await locks.cell("c").delete()
    await eventually(lambda: seen == ["a", "b", None])
    await locks.cell("other").set("x")
    await locks.cell("c").set("c")
    await eventually(lambda: seen == ["a", "b", None, "c"])


@needs("cells")
async def test_a_watch_that_is_closed_is_over(locks: Front) -> None:
    await locks.cell("c").set("a")
    stream = locks.cell("c").watch()
    assert (await soon(stream.next()))[0] == "a"
    await stream.stop()

    assert await stream.next() is OVER


@needs("cells")
async def test_a_value_over_the_limit_is_refused(locks: Front) -> None:
    for value in (b"x" * 65_537, "x" * 65_536):
        with pytest.raises(InvalidRequest):
            await locks.cell("c").set(value)
    assert await locks.cell("c").get() == (None, 0)


@needs("cells")
async def test_what_json_cannot_carry_is_refused(locks: Front) -> None:
    values = [object(), {1, 2}, float("nan"), {"a": float("inf")}]
    assert [value for value in values if not await declined(locks.cell("c").set(value))] == []


@needs("cells")
async def test_a_version_that_cannot_be_is_refused(locks: Front) -> None:
    versions = [-1, True, "1", 1.0, 2**70]
    assert [each for each in versions if not await declined(locks.cell("c").set("a", version=each))] == []
    assert [each for each in versions if not await declined(locks.cell("c").delete(version=each))] == []


@needs("cells")
async def test_what_cannot_even_be_shown_is_refused(locks: Front) -> None:
    deep: Any = []
    for _ in range(20_000):
        deep = [deep]

    for value in (deep, 10**5000):
        with pytest.raises(InvalidRequest):
            await locks.cell("c").set(value)


@needs("cells")
@pytest.mark.one_recipe
async def test_a_value_is_nested_as_deeply_as_every_python_can_read(locks: Front) -> None:
    def nested(depth: int) -> Any:
        value: Any = '"[' * 600
        for _ in range(depth // 2):
            value = [{"[": value}]
        return value

    await locks.cell("c").set(nested(500))
    assert (await locks.cell("c").get())[0] == nested(500)
    wide: list[Any] = [[]] * 2_000
    await locks.cell("c").set(wide)
    with pytest.raises(InvalidRequest, match="nested more than 500 times"):
        await locks.cell("c").set(nested(502))


@needs("cells")
async def test_a_change_that_is_a_coroutine_is_refused(locks: Front) -> None:
    async def change(value: Any) -> Any:
        return value

    with pytest.raises(InvalidRequest, match="plain function"):
        await locks.cell("c").update(change)


@needs("cells")
async def test_a_cell_outlives_the_client_that_wrote_it(stage: Stage, locks: Front) -> None:
    version = await locks.cell("c").set("kept")
    await locks.close()
    later = await stage.client()

    assert await later.cell("c").get() == ("kept", version)


@needs("cells")
async def test_retries_that_cannot_be_are_refused(locks: Front) -> None:
    for retries in (-1, True, 1.5, "3", None):
        with pytest.raises(InvalidRequest, match="retries"):
            await locks.cell("c").update(lambda value: value, retries=retries)


@needs("cells")
async def test_an_update_gives_up_after_its_retries(stage: Stage, locks: Front) -> None:
    tries: list[Any] = []
    with holdfast.connect(stage.url) as faster:

        def overtaken(value: Any) -> Any:
            # Somebody else always writes between the read and the write of this one.
            tries.append(value)
            faster.cell("c").set(len(tries))
            return "never"

        with pytest.raises(Conflict):
            await locks.cell("c").update(overtaken, retries=2)
    assert tries == [None, 1, 2]
    assert (await locks.cell("c").get())[0] == 3


@needs("cells")
async def test_a_change_that_fails_writes_nothing(locks: Front) -> None:
    version = await locks.cell("c").set("a")

    def fail(value: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await locks.cell("c").update(fail)
    assert await locks.cell("c").get() == ("a", version)


@needs("cells")
async def test_a_look_or_a_write_is_one_request(locks: Front) -> None:
    cell, counter = locks.cell("c"), Counter()
    await cell.set("warm")  # a connection is made, and a script loaded, once
    await cell.get()
    counter.around(locks.target._core.verbs)

    await cell.get()
    assert counter.requests == 1
    version = await cell.set("a")
    assert counter.requests == 2
    await cell.set("b", version=version)
    assert counter.requests == 3
    await cell.update(lambda value: value)
    assert counter.requests == 5
    await cell.delete()
    assert counter.requests == 6
