"""Where the time of an uncontended pair goes: `python bench/hotspots.py URL [blocking|asyncio]`."""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import sys

import holdfast
from holdfast import aio

PAIRS = 5_000


def blocking(url: str, profile: cProfile.Profile) -> None:
    """Pairs of one blocking caller."""
    with holdfast.connect(url) as locks:
        lock = locks.lock("hotspot")
        lock.acquire().release()
        profile.enable()
        for _ in range(PAIRS):
            lock.acquire().release()
        profile.disable()


async def tasks(url: str, profile: cProfile.Profile) -> None:
    """Pairs of one task."""
    async with aio.connect(url) as locks:
        lock = locks.lock("hotspot")
        await (await lock.acquire()).release()
        profile.enable()
        for _ in range(PAIRS):
            await (await lock.acquire()).release()
        profile.disable()


def main(url: str, api: str = "blocking") -> None:
    """Print what took longest, by its own time."""
    profile = cProfile.Profile()
    if api == "asyncio":
        asyncio.run(tasks(url, profile))
    else:
        blocking(url, profile)
    pstats.Stats(profile).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main(*sys.argv[1:])
