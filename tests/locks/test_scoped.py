"""A `with` that is left elsewhere than it was entered."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import holdfast
from holdfast import aio


def test_a_with_that_ends_in_another_thread_releases() -> None:
    with holdfast.connect("memory://elsewhere") as locks:
        lock = locks.lock("k")
        entering = threading.Thread(target=lock.__enter__)
        entering.start()
        entering.join()
        lock.__exit__(None, None, None)

        assert locks.list() == []


async def test_an_async_with_that_ends_in_another_task_releases() -> None:
    async with aio.connect("memory://elsewhere-aio") as locks:
        lock = locks.lock("k")
        await asyncio.create_task(lock.__aenter__())
        await lock.__aexit__(None, None, None)

        assert await locks.list() == []


def test_each_thread_leaves_what_it_entered() -> None:
    with holdfast.connect("memory://each") as locks:
        lock = locks.semaphore("k", limit=2)
        inside, leave = threading.Event(), threading.Event()

        def stay() -> None:
            with lock:
                inside.set()
                leave.wait(10.0)

        with lock as mine:
            thread = threading.Thread(target=stay)
            thread.start()
            inside.wait(10.0)
        left = locks.inspect("k", kind="semaphore").holders
        leave.set()
        thread.join()

    assert [holder.slot for holder in left] == [1 - (mine.slot or 0)]


async def test_nothing_of_an_async_with_is_left_for_the_garbage_collector() -> None:
    async with aio.connect("memory://garbage") as locks:
        gc.disable()
        try:
            async with locks.lock("k") as grant:
                one = weakref.ref(grant)
            async with locks.lock_all("a", "b") as grants:
                each = weakref.ref(grants["a"])
            del grant, grants

            assert (one(), each()) == (None, None)
        finally:
            gc.enable()
