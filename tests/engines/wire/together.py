"""What concurrent tasks ask for in one turn of the loop."""

from __future__ import annotations

import asyncio

from holdfast import aio
from tests.conformance.stage import PATIENCE

TASKS = 16


async def take(client: aio.Client, names: list[str]) -> list[aio.Grant]:
    """All of them in one turn of the loop, each by a task of its own."""
    return list(await asyncio.gather(*(client.lock(name).acquire(wait=PATIENCE) for name in names)))


async def give(grants: list[aio.Grant]) -> None:
    await asyncio.gather(*(grant.release() for grant in grants))


def names(start: str = "k") -> list[str]:
    return [f"{start}{number}" for number in range(TASKS)]


async def take_one(client: aio.Client, name: str) -> bool:
    """Whether it is free now; it is given back."""
    grant = await client.lock(name).acquire(wait=PATIENCE)
    await grant.release()
    return True
