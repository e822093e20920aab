"""A latch: opens for good when it has been counted down to zero."""

from __future__ import annotations

from contextlib import suppress
from math import inf

from holdfast.core.table.commands import Mismatch
from holdfast.errors import HoldfastError, InvalidRequest, NotAcquired
from holdfast.locks.acquire import answer_by
from holdfast.locks.cell import CellFront
from holdfast.locks.client import Client
from holdfast.locks.lost_data import lost_data
from holdfast.locks.spec import check_count
from holdfast.locks.watching import Watching
from holdfast.model import MAX_TOKEN

KEEP = 86_400.0


class LatchFront:
    """A count in a cell. It lives `keep` seconds after its last use."""

    def __init__(self, client: Client, name: str, count: int, keep: float) -> None:
        check_count("count", count, f"a latch counts down from 1 to {MAX_TOKEN}")
        self.client, self.name, self.count = client, name, count
        self.cell = CellFront(client, "latch", name, keep)
        self.keep = self.cell.keep or KEEP

    async def left(self, by: float = inf) -> tuple[int, int]:
        """How many are missing, and the cell's version."""
        value, version = await self.cell.get(by)
        if value is None:
            return self.count, version
        if value["count"] != self.count:
            raise InvalidRequest("count", self.count, f"latch {self.name!r} is in use with count {value['count']}")
        return int(value["left"]), version

    async def count_down(self, n: int) -> int:
        """Count down by `n`; how many are missing now, 0 at the least."""
        check_count("n", n, f"a latch counts down by 1 to {MAX_TOKEN}")
        while True:
            left, version = await self.left()
            left = max(0, left - n)
            written = await self.cell.try_set({"count": self.count, "left": left}, version)
            if not isinstance(written, Mismatch):
                return left

    async def wait(self, wait: float | None) -> None:
        """Wait until the count is zero; NotAcquired if that takes longer than `wait`."""
        io = self.client.io
        started = io.now()
        until = None if wait is None else started + wait
        by = answer_by(until)
        left, version = await self.left(by)
        seen = (left, version)
        if not left:
            # It is open, whatever becomes of this: somebody else has just used it, or the engine is out of reach.
            with suppress(HoldfastError):
                await self.use(left, version, by)
            return
        async with Watching(self.client, cell=(self.cell.kind, self.name), by=by) as watching:
            while True:
                left, version = await self.left(by)
                if left > seen[0] or version < seen[1]:
                    # It is counted down only, and kept for as long as a client waits for it.
                    raise lost_data(self.client, f"latch {self.name!r} went back from {seen[0]} to {left} missing")
                if not left:
                    return
                seen = (left, version)
                if until is not None and io.now() >= until:
                    raise NotAcquired(self.name, io.now() - started, kind="latch")
                touch_at = io.now() + self.keep / 3
                await watching.next_letters(touch_at if until is None else min(until, touch_at))
                if io.now() >= touch_at:
                    await self.touch(by)

    async def touch(self, by: float) -> None:
        """Waiting is a use: keep the count for as long as somebody waits for it."""
        left, version = await self.left(by)
        if version:
            await self.use(left, version, by)

    async def use(self, left: int, version: int, by: float) -> None:
        """Write what is there again, so that it is kept from now on, unless another client has just used it."""
        await self.cell.try_set({"count": self.count, "left": left}, version, by)
