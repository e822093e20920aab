"""Plain steps of concurrent tasks are sent as one request, and come out as if each had been sent by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis as redis_py

from holdfast import EngineUnavailable, LockLost, aio
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.redis import RedisServer
from tests.conformance.stage import PATIENCE, eventually

TASKS = 16


@pytest.fixture
async def locks(url: str) -> AsyncIterator[aio.Client]:
    async with aio.connect(url) as client:
        await (await client.lock("first").acquire()).release()
        yield client


async def take(client: aio.Client, names: list[str]) -> list[aio.Grant]:
    """All of them in one turn of the loop, each by a task of its own."""
    return list(await asyncio.gather(*(client.lock(name).acquire(wait=PATIENCE) for name in names)))


async def give(grants: list[aio.Grant]) -> None:
    await asyncio.gather(*(grant.release() for grant in grants))


def names(start: str = "k") -> list[str]:
    return [f"{start}{number}" for number in range(TASKS)]


def calls(server: redis_py.Redis) -> int:
    """How often a script was called."""
    return int(server.info("commandstats")["cmdstat_evalsha"]["calls"])


async def test_pairs_of_many_tasks_are_two_requests(server: RedisServer) -> None:
    with redis_py.Redis(port=server.port) as operator:
        async with aio.connect(f"redis://127.0.0.1:{server.port}/0") as client:
            await give(await take(client, names()))
            before = calls(operator)
            for _ in range(10):
                await give(await take(client, names()))

            # Heartbeats come in between.
            assert calls(operator) - before < 2 * 10 * 2


async def test_where_many_want_one_lock_a_grant_takes_no_more_than_its_two_requests(server: RedisServer) -> None:
    """To ask together first and then by itself would make three."""
    rounds = 20

    async def take_turns(client: aio.Client) -> None:
        for _ in range(rounds):
            await (await client.lock("same").acquire()).release()

    with redis_py.Redis(port=server.port) as operator:
        async with aio.connect(f"redis://127.0.0.1:{server.port}/0") as client:
            await (await client.lock("first").acquire()).release()
            before = calls(operator)
            await asyncio.wait_for(asyncio.gather(*(take_turns(client) for _ in range(TASKS))), PATIENCE)

            assert calls(operator) - before < 2.5 * TASKS * rounds


async def test_their_tokens_differ_and_grow(locks: aio.Client) -> None:
    tokens: list[int] = []
    for _ in range(5):
        grants = await take(locks, names())
        tokens += sorted(grant.token for grant in grants)
        await give(grants)

    assert tokens == sorted(set(tokens))


async def test_they_leave_nothing_behind(locks: aio.Client, redis: redis_py.Redis) -> None:
    before = set(redis.keys())
    await give(await take(locks, names()))

    assert set(redis.keys()) == before
    (session,) = redis.keys("*session:*")
    fields: list[Any] = list(redis.hkeys(session))
    assert not [field for field in fields if field.startswith(b"c:")]


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


async def test_a_server_that_forgot_the_script_is_sent_it_again(locks: aio.Client, redis: redis_py.Redis) -> None:
    redis.script_flush()
    grants = await take(locks, names())
    redis.script_flush()
    await give(grants)

    assert await take_one(locks, "k0")


async def test_one_that_is_cancelled_leaves_nothing_and_the_others_are_granted(locks: aio.Client) -> None:
    tasks = [asyncio.ensure_future(locks.lock(name).acquire()) for name in names()]
    await asyncio.sleep(0)
    tasks[0].cancel()
    cancelled, *grants = await asyncio.gather(*tasks, return_exceptions=True)

    assert isinstance(cancelled, asyncio.CancelledError)
    assert await take_one(locks, "k0")
    await give([grant for grant in grants if isinstance(grant, aio.Grant)])


@pytest.mark.parametrize("direction", ["requests", "replies"])
async def test_a_connection_that_is_cut_at_any_byte_costs_none_of_them(url: str, direction: str) -> None:
    host, _, rest = url.removeprefix("redis://").partition(":")
    port, _, database = rest.partition("/")
    with Proxy(host, int(port)) as proxy:
        async with aio.connect(f"redis://127.0.0.1:{proxy.port}/{database}") as client, aio.connect(url) as rival:
            await (await client.lock("first").acquire()).release()
            way = proxy.requests if direction == "requests" else proxy.replies
            for byte in range(0, 600, 97):
                way.set("cut", after=byte)
                grants = await take(client, names())
                proxy.heal()
                way.set("cut", after=byte)
                await give(grants)
                proxy.heal()

                await give(await take(rival, names()))


async def take_one(client: aio.Client, name: str) -> bool:
    """Whether it is free now; it is given back."""
    grant = await client.lock(name).acquire(wait=PATIENCE)
    await grant.release()
    return True


async def test_a_request_that_is_begun_while_the_clock_is_looked_at_is_given_up_in_time(url: str) -> None:
    """Between two turns of the loop it is in no list yet of what has to be answered."""
    host, port, database = url.removeprefix("redis://").replace("/", ":").split(":")
    with Proxy(host, int(port)) as proxy:
        async with aio.connect(f"redis://127.0.0.1:{proxy.port}/{database}") as client:
            grant = await client.lock("k").acquire()
            client._core.call_limit = 0.5
            stream: Any = client._core.verbs.io.port._stream  # type: ignore[attr-defined]
            # All that was asked before is answered. The last look at the clock comes just after the next request.
            await eventually(lambda: not stream._ticking)
            proxy.replies.set("stall")
            stream._ticking = True
            release = asyncio.create_task(grant.release())
            asyncio.get_running_loop().call_soon(stream._tick)

            with pytest.raises(EngineUnavailable):
                await asyncio.wait_for(release, PATIENCE)
            proxy.heal()


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
