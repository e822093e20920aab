"""A server that says "ask elsewhere" has done nothing, for nobody who asked."""

from __future__ import annotations

import asyncio

from holdfast import aio
from holdfast.errors import EngineUnavailable
from tests.servers.lock_server import LockServer


async def test_many_writes_at_once_survive_a_server_that_stops_in_order(server: LockServer) -> None:
    async with aio.connect(server.url) as locks:
        failed: list[EngineUnavailable] = []
        stopped, done = asyncio.Event(), 0

        async def write(number: int) -> None:
            nonlocal done
            cell = locks.cell(f"c{number}")
            version = await cell.set(b"0")
            while not stopped.is_set():
                try:
                    version = await cell.set(b"1", version=version)
                except EngineUnavailable as error:
                    # "Not done" is no guess: the server may have been away for longer than a call may take.
                    if error.outcome == "unknown":
                        failed.append(error)
                        return
                else:
                    done += 1

        async with asyncio.TaskGroup() as tasks:
            for number in range(32):
                tasks.create_task(write(number))
            for _ in range(3):
                before = done
                await asyncio.to_thread(server.stop)
                await asyncio.to_thread(server.start)
                async with asyncio.timeout(30):
                    while True:
                        if done >= before + 100 or failed:
                            break
                        await asyncio.sleep(0.01)
            stopped.set()

    assert failed == []
