"""Every engine in another event loop than asyncio's own."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from holdfast import aio


async def _pass_on(url: str) -> list[int]:
    """The tokens of two clients, of which the second has to wait."""
    async with aio.connect(url) as first, aio.connect(url) as second:
        held = await first.lock("k").acquire()
        waiting = asyncio.create_task(second.lock("k").acquire(wait=30))
        async with asyncio.timeout(30):
            while True:
                if second._core.waiting:
                    break
                await asyncio.sleep(0.01)
        await held.release()
        return [held.token, (await waiting).token]


@pytest.mark.any_connection
def test_a_lock_is_granted_and_passed_on_in_uvloop(url: str) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        first, second = runner.run(_pass_on(url))

    assert first < second
