"""A client of an event loop that was closed before it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import holdfast
from holdfast import aio
from tests.conformance.stage import eventually


def test_a_client_whose_loop_was_closed_releases_with_the_next_heartbeat(tmp_path: Path) -> None:
    """A program that ends a loop without closing its clients: an exception, or a cell of a notebook."""

    url = f"sqlite:///{tmp_path}/locks.db"

    async def take() -> tuple[aio.Client, aio.Grant]:
        locks = await aio.connect(url, ttl=3.0)
        return locks, await locks.lock("k").acquire()

    with asyncio.Runner() as runner:
        locks, held = runner.run(take())
    with holdfast.connect(url, ttl=30.0) as rival:
        with rival.lock("k", wait=6.0):
            assert not held.valid
        keeper = locks._core.keeper
        assert keeper is not None
        asyncio.run(eventually(keeper.done.is_set))
