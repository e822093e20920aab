"""A client that nothing refers to any more is ended by its keeper, with a warning."""

from __future__ import annotations

import gc
import os
from collections.abc import Awaitable, Callable

import pytest

import holdfast
from holdfast import aio
from holdfast.locks.keeper import Keeper
from tests.conformance.stage import eventually


async def use_tasks(url: str) -> Keeper:
    """Use a client and forget it."""
    locks = await aio.connect(url, ttl=30.0)
    async with locks.lock("k"):
        assert locks._core.keeper is not None
        return locks._core.keeper


async def use_threads(url: str) -> Keeper:
    """The same with the blocking API."""
    locks = holdfast.connect(url, ttl=30.0)
    with locks.lock("k"):
        assert locks._core.keeper is not None
        return locks._core.keeper


async def ended(use: Awaitable[Keeper]) -> None:
    """Use a client, forget it, and wait until its keeper has ended."""
    keeper = await use
    gc.collect()
    await eventually(keeper.done.is_set)


def open_descriptors() -> int:
    """How many this process has."""
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("use", [use_tasks, use_threads])
async def test_a_forgotten_client_warns_and_leaves_nothing_open(
    url: str, use: Callable[[str], Awaitable[Keeper]]
) -> None:
    async with aio.connect(url, ttl=30.0) as locks, locks.lock("k"):
        pass
    gc.collect()
    before = open_descriptors()
    with pytest.warns(ResourceWarning, match="was not closed"):
        await ended(use(url))
    await eventually(lambda: open_descriptors() <= before)
