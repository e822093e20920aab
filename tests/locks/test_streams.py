"""What keeps coming ends when anybody says so, also while somebody waits for more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast.engines.memory import table
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
