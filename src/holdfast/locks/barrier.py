"""A barrier: `parties` wait for each other, then all go on; then the next generation may come.

Each party that waits has a shared claim on the barrier's name, which lives as long as its
session: a dead party is not counted. Whoever sees enough parties writes the ids of the claims
that go through into a cell, by compare-and-set: that is the generation, and what the others
wait for. A party that is not in it, however it was delayed, waits for the next. One that is in it
has passed, also if its session ended before it could see that: a party looks for every claim that
it has made, and before it makes another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from holdfast.core.table.commands import Mismatch
from holdfast.errors import EngineFailure, InvalidRequest, NotAcquired
from holdfast.locks.acquire import Ended, acquire, answer_by
from holdfast.locks.cell import CellFront
from holdfast.locks.client import GRACE, Client
from holdfast.locks.hold import Entry, Hold
from holdfast.locks.lost_data import lost_data
from holdfast.locks.outcome import unknown_from_here
from holdfast.locks.several import let_go, still_there
from holdfast.locks.spec import make_spec
from holdfast.locks.watching import SAFETY_NET, Watching

KEEP = 86_400.0
MOST_PARTIES = 1_000
FEWEST_REMEMBERED = 100
"""How many parties of earlier generations stay on record, at least two generations of them."""


class BarrierFront:
    """One barrier."""

    def __init__(self, client: Client, name: str, parties: int) -> None:
        if isinstance(parties, bool) or not isinstance(parties, int) or not 1 <= parties <= MOST_PARTIES:
            raise InvalidRequest("parties", parties, f"a barrier has 1 to {MOST_PARTIES} parties")
        self.client, self.name, self.parties = client, name, parties
        self.spec = make_spec("barrier", name, mode="shared", note=str(parties))
        self.cell = CellFront(client, "barrier", name, KEEP)

    async def wait(self, wait: float | None) -> int:
        """Wait for the other parties; the generation's number. NotAcquired if they do not come in time."""
        io = self.client.io
        started = io.now()
        until = None if wait is None else started + wait
        by, claims = answer_by(until), list[str]()
        async with Watching(self.client, cell=(self.cell.kind, self.name), by=by) as watching:
            while True:
                taken: list[Entry] = []
                try:
                    left = None if until is None else max(0.0, until - io.now())
                    hold: Hold | None = None
                    try:
                        hold = (await acquire(self.client, self.spec, left, taken, once=True)).held
                        claims.append(hold.claim.id)
                    except Ended as ended:
                        claims.append(ended.claim_id)
                    # From here on others may count this party.
                    with unknown_from_here():
                        generation = await self.passed(claims, hold, until, watching)
                finally:
                    given_back = await io.shielded(let_go(self.client, taken, by))
                if generation is not None:
                    # It went through, also if its place is given back later.
                    return generation
                if not given_back:
                    raise still_there(self.client)
                if until is not None and io.now() >= until:
                    # A process that was paused past its wait gets time for this, too.
                    with unknown_from_here():
                        generation = await self.last_look(claims, max(by, io.now() + GRACE / 2))
                    if generation is not None:
                        return generation
                    raise NotAcquired(self.name, io.now() - started, kind="barrier")

    async def passed(
        self, claims: Sequence[str], hold: Hold | None, until: float | None, watching: Watching
    ) -> int | None:
        """The generation that counted one of these claims; None if the time ran out, or the session of the last did."""
        io, seen = self.client.io, 0
        while True:
            # Others may have gone through on this party's account while it was paused, also past its ttl or its wait.
            look_by = watching.by if io.now() < watching.by else io.now() + GRACE
            value, version = await self.cell.get(look_by)
            if 0 < version < seen:
                raise lost_data(self.client, f"barrier {self.name!r} went back from version {seen} to {version}")
            seen = version
            through: dict[str, int] = value["through"] if value else {}
            generation = counted(value, claims)
            if generation is not None:
                return generation
            if hold is None or not hold.valid or io.now() >= watching.by:
                return None
            here = await self.parties_here(hold, watching.until())
            waiting = [claim for claim in here if claim not in through]
            if len(waiting) >= self.parties:
                # Exactly the first in order go through together. One that has not heard of it yet stays on record.
                number = (value["last"] if value else 0) + 1
                now_through = dict.fromkeys(waiting[: self.parties], number)
                record = {"last": number, "through": remembered(through, here, self.parties) | now_through}
                # If another party was faster, the next look shows it.
                await self.cell.try_set(record, version, watching.by)
                continue
            if until is not None and io.now() >= until:
                return None
            # No letter tells of a place that was taken from us, and nobody comes for one who is not counted: look.
            look_at = io.now() + min(SAFETY_NET, self.client.ttl / 2)
            try:
                await watching.next_letters(look_at if until is None else min(until, look_at))
            except EngineFailure:
                # A process that was paused past its wait has no time left for letters. It may have been counted.
                if io.now() < watching.by:
                    raise

    async def last_look(self, claims: Sequence[str], by: float) -> int | None:
        """The generation that counted one of these claims, which are given back; if None, there will be none.

        Another party may have looked while one of them was there, and write that it counted it only now. It expects
        a version that is not newer than the one seen here, so any other write in between makes it look again.
        """
        value, version = await self.cell.get(by)
        generation = counted(value, claims)
        if generation is None:
            written = await self.cell.try_set(value or {"last": 0, "through": {}}, version, by)
            if isinstance(written, Mismatch):
                # The write of another party was that one, or it has counted this one.
                generation = counted((await self.cell.get(by))[0], claims)
        return generation

    async def parties_here(self, hold: Hold, until: float) -> list[str]:
        """The claims of the parties that are here, in order. One that came before us says how many there are."""
        info = await self.client.verbs.inspect(self.client.kind("barrier"), self.name, until)
        for holder in takewhile(lambda holder: holder.claim != hold.claim.id, info.holders):
            if holder.note != self.spec.note:
                raise InvalidRequest(
                    "parties", self.parties, f"barrier {self.name!r} is in use with {holder.note} parties"
                )
        return [holder.claim for holder in info.holders if holder.note == self.spec.note]


def counted(value: Any, claims: Sequence[str]) -> int | None:
    """The first generation that has one of these claims."""
    through: dict[str, int] = value["through"] if value else {}
    return min((through[claim] for claim in claims if claim in through), default=None)


def remembered(through: dict[str, int], here: list[str], parties: int) -> dict[str, int]:
    """Which parties of earlier generations stay on record: those that are here, and of the others the latest.

    One that was paused past its ttl is not here any more, and asks when it goes on.
    """
    kept = {claim: through[claim] for claim in here if claim in through}
    gone = sorted((claim for claim in through if claim not in kept), key=through.__getitem__, reverse=True)
    room = min(max(FEWEST_REMEMBERED, 2 * parties), MOST_PARTIES) - len(kept)
    return kept | {claim: through[claim] for claim in gone[: max(0, room)]}
