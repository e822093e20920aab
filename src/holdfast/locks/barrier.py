"""A barrier: `parties` wait for each other, then all go on; then the next generation may come.

Each party that waits has a shared claim on the barrier's name, which lives as long as its
session: a dead party is not counted. A cell holds the generation; whoever sees enough parties
of it moves it on, by compare-and-set, and that is what the others wait for.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from holdfast.errors import Conflict, InvalidRequest, NotAcquired
from holdfast.locks.acquire import acquire
from holdfast.locks.cell import CellFront
from holdfast.locks.client import Client
from holdfast.locks.release import release_quietly
from holdfast.locks.spec import make_spec
from holdfast.locks.watching import Watching

KEEP = 86_400.0


class BarrierFront:
    """One barrier."""

    def __init__(self, client: Client, name: str, parties: int) -> None:
        if isinstance(parties, bool) or not isinstance(parties, int) or parties < 1:
            raise InvalidRequest("parties", parties, "a barrier has 1 party or more")
        self.client, self.name, self.parties = client, name, parties
        self.spec = make_spec("barrier", name, mode="shared")
        self.cell = CellFront(client, "barrier", name, KEEP)

    async def wait(self, wait: float | None) -> int:
        """Wait for the other parties; the generation's number. NotAcquired if they do not come in time."""
        io = self.client.io
        started = io.now()
        until = None if wait is None else started + wait
        async with Watching(self.client, cell=(self.cell.kind, self.name)) as watching:
            while True:
                _, generation = await self.cell.get()
                spec = replace(self.spec, note=f"{self.parties} {generation}")
                hold = await acquire(self.client, spec, None if until is None else max(0.0, until - io.now()))
                try:
                    if await self.passed(generation, until, watching):
                        return generation
                finally:
                    await io.shielded(release_quietly(self.client, hold))
                if until is not None and io.now() >= until:
                    raise NotAcquired(self.name, io.now() - started)

    async def passed(self, generation: int, until: float | None, watching: Watching) -> bool:
        """Whether the generation went through; False if its time ran out, or our own session did."""
        while True:
            _, now = await self.cell.get()
            if now != generation:
                return True
            if await self.arrived(generation) >= self.parties:
                with suppress(Conflict):  # somebody else moved it on
                    await self.cell.set(self.parties, generation)
                return True
            if until is not None and self.client.io.now() >= until:
                return False
            await watching.next_letters(until)

    async def arrived(self, generation: int) -> int:
        """How many parties of this generation wait now."""
        info = await self.client.verbs.inspect(self.client.kind("barrier"), self.name, self.client.until())
        notes = [holder.note.split() for holder in info.holders]
        for parties, _ in notes:
            if int(parties) != self.parties:
                raise InvalidRequest("parties", self.parties, f"barrier {self.name!r} is in use with {parties} parties")
        return sum(int(number) == generation for _, number in notes)
