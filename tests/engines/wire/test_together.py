"""Plain steps of concurrent tasks are sent as one request, and come out as if each had been sent by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from holdfast import LockLost, aio
from holdfast.verify.proxy import Proxy
from tests.conformance.stage import PATIENCE
from tests.engines.wire.together import TASKS, give, names, take, take_one


@pytest.fixture
async def locks(url: str) -> AsyncIterator[aio.Client]:
    async with aio.connect(url) as client:
        await (await client.lock("first").acquire()).release()
        yield client


async def test_their_tokens_differ_and_grow(locks: aio.Client) -> None:
    tokens: list[int] = []
    for _ in range(5):
        grants = await take(locks, names())
        tokens += sorted(grant.token for grant in grants)
        await give(grants)

    assert tokens == sorted(set(tokens))


async def test_those_that_want_the_same_lock_have_it_one_after_the_other(locks: aio.Client) -> None:
    count = 0

    async def increment(name: str) -> None:
        nonlocal count
        async with locks.lock(name):
            seen = count
            await asyncio.sleep(0)
            count = seen + 1

    # A name of its own for each besides, so that what is plain and what is not go together.
    beside = take(locks, names("other"))
    await asyncio.wait_for(asyncio.gather(*(increment("same") for _ in range(TASKS))), PATIENCE)
    assert count == TASKS
    await give(await beside)


async def test_people_see_who_holds_them(locks: aio.Client) -> None:
    grant, *others = await take(locks, names())
    (holder,) = (await locks.inspect(grant.name)).holders

    assert (holder.owner, holder.token, holder.mode) == (grant.owner, grant.token, "exclusive")
    await give([grant, *others])


async def test_one_that_was_broken_is_lost_and_the_others_are_not(locks: aio.Client) -> None:
    broken, *others = await take(locks, names())
    await locks.break_lock(broken.name, force=True)
    outcomes = await asyncio.gather(*(grant.release() for grant in (broken, *others)), return_exceptions=True)

    assert isinstance(outcomes[0], LockLost)
    assert outcomes[1:] == [None] * len(others)


async def test_one_that_is_cancelled_leaves_nothing_and_the_others_are_granted(locks: aio.Client) -> None:
    tasks = [asyncio.ensure_future(locks.lock(name).acquire()) for name in names()]
    await asyncio.sleep(0)
    tasks[0].cancel()
    cancelled, *grants = await asyncio.gather(*tasks, return_exceptions=True)

    assert isinstance(cancelled, asyncio.CancelledError)
    assert await take_one(locks, "k0")
    await give([grant for grant in grants if isinstance(grant, aio.Grant)])


@pytest.mark.parametrize("direction", ["requests", "replies"])
async def test_a_connection_that_is_cut_at_any_byte_costs_none_of_them(
    locks: aio.Client, proxy: Proxy, far_url: str, direction: str
) -> None:
    async with aio.connect(far_url) as client:
        await (await client.lock("first").acquire()).release()
        way = proxy.requests if direction == "requests" else proxy.replies
        for byte in range(0, 600, 97):
            way.set("cut", after=byte)
            grants = await take(client, names())
            proxy.heal()
            way.set("cut", after=byte)
            await give(grants)
            proxy.heal()

            await give(await take(locks, names()))


async def test_a_task_may_have_any_name(locks: aio.Client) -> None:
    """Also one with what tells the steps of a request apart."""
    odd = ["a\tb", "a\nb", "\n-1", "\t\t\t", "a\n+9\tk9\tx\tt", "ä", "a" * 300] * 2

    async def take_one(number: int) -> aio.Grant:
        return await locks.lock(f"k{number}").acquire(wait=PATIENCE)

    taking = [asyncio.create_task(take_one(number), name=name) for number, name in enumerate(odd)]
    grants = await asyncio.gather(*taking)

    for number, name in enumerate(odd):
        (holder,) = (await locks.inspect(f"k{number}")).holders
        assert holder.thread == name
    assert len(await locks.list()) == len(odd)
    await give(grants)


async def test_whatever_is_noted_is_kept_word_by_word(locks: aio.Client) -> None:
    """Words that are sent together are told apart by line breaks, which a note and a task's name may have too."""
    notes = ["", "a", "a\nb", "\n", "r\nk1\nk2\n", "ä\n"] * 2

    async def take_one(number: int, note: str) -> aio.Grant:
        return await locks.lock(f"k{number}", note=note).acquire(wait=PATIENCE)

    taking = [
        asyncio.create_task(take_one(number, note), name=f"task{note}{number}") for number, note in enumerate(notes)
    ]
    grants = await asyncio.gather(*taking)

    for number, note in enumerate(notes):
        (holder,) = (await locks.inspect(f"k{number}")).holders
        assert (holder.note, holder.thread) == (note, f"task{note}{number}")
    await give(grants)
    assert await locks.list() == []


@pytest.mark.parametrize("count", [60, 140])
async def test_what_cannot_go_as_one_is_sent_in_turns(locks: aio.Client, count: int) -> None:
    """Two kinds one after the other make as many requests as there are tasks, more than are written at once."""
    taking: list[Coroutine[Any, Any, aio.Grant]] = []
    for number in range(count // 2):
        taking += [locks.lock(f"k{number}").acquire(), locks.semaphore(f"s{number}", limit=2).acquire()]
    grants = await asyncio.wait_for(asyncio.gather(*taking), PATIENCE)
    await asyncio.wait_for(give(grants), PATIENCE)

    assert await locks.list() == []
