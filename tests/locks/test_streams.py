"""What keeps coming ends when anybody says so, also while somebody waits for more."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast.engines.memory import table
from holdfast.locks.watching import Watching
from holdfast.runtime.blocking import run
from tests.faults.children import eventually

STREAMS: dict[str, Callable[[Any], Any]] = {
    "watch": lambda locks: locks.watch("k"),
    "observe": lambda locks: locks.election("e").observe(),
    "cell": lambda locks: locks.cell("c").watch(),
    "follow": lambda locks: locks.log("l").follow(),
}


def sleeps(client: Any) -> bool:
    """Whether somebody waits for letters."""
    return any(signal is not None for signal in client._core.wakeups._expected.values())


@pytest.mark.parametrize("what", STREAMS)
def test_a_stream_that_another_thread_closes_ends_for_whoever_waits(what: str) -> None:
    with holdfast.connect("memory://streams", ttl=600.0) as locks:
        stream = STREAMS[what](locks)
        seen: list[object] = []
        waits = threading.Thread(target=lambda: seen.extend(stream), daemon=True)
        waits.start()
        eventually(lambda: sleeps(locks), "nobody waits")
        stream.close()
        waits.join(10.0)

        assert not waits.is_alive()
        assert table("streams").rows.watches == {}
        assert list(stream) == []


@pytest.mark.parametrize("what", STREAMS)
async def test_a_stream_that_another_task_closes_ends_for_whoever_waits(what: str) -> None:
    async with aio.connect("memory://task-streams", ttl=600.0) as locks:
        stream = STREAMS[what](locks)

        async def rest() -> list[object]:
            return [one async for one in stream]

        waits = asyncio.create_task(rest())
        await asyncio.to_thread(eventually, lambda: sleeps(locks), "nobody waits")
        await stream.aclose()
        await asyncio.wait_for(waits, 10.0)

        assert table("task-streams").rows.watches == {}
        assert [one async for one in stream] == []


@pytest.mark.parametrize("read_anew", [False, True])
def test_a_watch_whose_session_ran_out_says_that_events_were_missed_unless_all_is_read_anew(read_anew: bool) -> None:
    with holdfast.connect("memory://missed") as locks:
        core = locks._core

        async def look() -> object:
            async with Watching(core, prefix="k", read_anew=read_anew) as watching:
                await core.verbs.close_session(watching.session.id, core.until())
                return await watching.next_letters(core.io.now())

        if read_anew:
            assert run(look()) == ()
        else:
            with pytest.raises(holdfast.HoldfastError, match="were missed: its session ran out at the engine"):
                run(look())


@pytest.mark.parametrize("what", STREAMS)
async def test_an_anext_that_ran_out_of_time_loses_nothing(what: str) -> None:
    """The first of what a stream gives may be what is there already."""
    async with aio.connect(f"memory://late-{what}") as locks, aio.connect(f"memory://late-{what}") as other:
        stream = STREAMS[what](locks)
        for _ in range(3):
            with suppress(TimeoutError):
                await asyncio.wait_for(anext(stream), 0.05)

        coming = asyncio.create_task(anext(stream))
        async with other.lock("k"):
            led = await other.election("e").campaign()
            await other.cell("c").set("value")
            await other.log("l").append(["event"])
            assert await asyncio.wait_for(coming, 10.0) is not None
            await led.release()
        await stream.aclose()

        assert table(f"late-{what}").rows.watches == {}
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


@pytest.mark.parametrize("what", STREAMS)
async def test_a_stream_whose_only_reader_is_cancelled_ends_although_it_was_not_closed(what: str) -> None:
    async with aio.connect(f"memory://left-{what}", ttl=600.0) as locks:

        async def follow() -> None:
            async for _ in STREAMS[what](locks):
                pass

        reader = asyncio.create_task(follow())
        await asyncio.to_thread(eventually, lambda: sleeps(locks), "nobody waits")
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        del reader

        await asyncio.to_thread(eventually, lambda: table(f"left-{what}").rows.watches == {}, "it is still told")
        assert locks._core.wakeups._expected == {}


async def test_two_tasks_that_ask_one_stream_share_what_comes() -> None:
    async with aio.connect("memory://shared", ttl=600.0) as locks, locks.log("l").follow() as stream:
        asking = [asyncio.create_task(anext(stream)) for _ in range(2)]
        await locks.log("l").append(["one", "two"])

        assert sorted(await asyncio.gather(*asking)) == [(0, "one"), (1, "two")]


async def test_an_anext_that_ran_out_of_time_says_nothing_when_its_client_is_closed() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    async with aio.connect("memory://unanswered", ttl=600.0) as locks:
        stream = locks.watch("k")
        with suppress(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.05)
        calls = [task for task in asyncio.all_tasks() if task.get_name() == "holdfast-call"]
    await asyncio.wait(calls)
    del stream, calls
    gc.collect()
    await asyncio.sleep(0)

    assert told == []
