"""Who holds an advisory lock and who waits for it, as far as the server tells."""

from __future__ import annotations

import re
from typing import Any, NoReturn

from holdfast.engines.advisory import keys
from holdfast.engines.advisory.holdings import Holdings, Taken
from holdfast.engines.narrow import NarrowVerbs
from holdfast.engines.postgres.wire import SqlError
from holdfast.errors import EngineFailure, HoldfastError, Unsupported
from holdfast.model import Claim, Link, LockInfo, Party, Place
from holdfast.runtime import clock

ATTEND = 0.25
"""How long a caller attends to its own connection; after that the keeper watches it, and wakes the caller."""
_DEADLOCK_LINE = re.compile(r"Process (\d+) waits for (\w+) on advisory lock \[([\d,]+)\]; blocked by process (\d+)\.")


class Collision(HoldfastError):
    """Another name has the same 64-bit key: the two keep each other out."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"another lock in use has the same 64-bit key as {name!r}: rename one, or drop ?recipe=advisory"
        )


class InspectingVerbs(NarrowVerbs):
    """The verbs that ask the server who is there."""

    holdings: Holdings
    address: str

    async def _ask(self, sql: str, until: float) -> Any:
        """One question on a connection that carries no locks."""
        raise NotImplementedError

    async def inspect(self, kind: str, name: str, until: float) -> LockInfo:
        found = await self._parties(kind, name, keys.keys_of(kind, name), until)
        if any(not tagged for tagged, party in found if party.token is not None):
            raise Collision(name)
        holders = tuple(party for _, party in found if party.token is not None)
        return LockInfo(kind, name, holders, tuple(party for _, party in found if party.token is None))

    async def _place(self, taken: Taken, until: float) -> Place:
        """Where in line a claim stands, and behind whom, as far as the server says so in a moment."""
        claim = taken.claim
        try:
            found = await self._parties(claim.kind, claim.name, taken.keys, min(until, clock.now() + ATTEND))
        except EngineFailure:
            # It stands there all the same: this is only what people see of it.
            return Place(1)
        line = [party.claim for _, party in found if party.token is None]
        return Place(line.index(claim.id) + 1 if claim.id in line else 1, self._holder(claim, found))

    async def _blocker(self, taken: Taken, until: float) -> Party | None:
        """Who is in the way, if the server can say so in time. Collision if it is there under another name."""
        claim = taken.claim
        try:
            found = await self._parties(claim.kind, claim.name, taken.keys, until)
        except EngineFailure:
            # It was refused all the same: that answer is there already.
            return None
        return self._holder(claim, found)

    def _holder(self, claim: Claim, found: list[tuple[bool, Party]]) -> Party | None:
        holders = [(tagged, party) for tagged, party in found if party.token is not None]
        if holders and not any(tagged for tagged, _ in holders):
            raise Collision(claim.name)
        return holders[0][1] if holders else None

    async def _parties(self, kind: str, name: str, found: keys.Keys, until: float) -> list[tuple[bool, Party]]:
        # A copy: other threads take and give back meanwhile.
        known = list(self.holdings.taken.values())
        ours = {taken.bound.wire.server_pid: taken for taken in known if taken.keys == found}
        parties = []
        for pid, granted, mode, tagged, app, host, since, now in await self._ask(keys.parties(found), until):
            taken = ours.get(pid)
            claim = taken.claim if taken is not None else None
            token = (taken.token if taken is not None else None) or 0
            party = Party(
                claim=claim.id if claim else f"backend {pid}", owner=claim.owner if claim else f"backend {pid}",
                app=app, host=host, pid=pid, thread=claim.thread if claim else "", note=claim.note if claim else "",
                since=since or now, age=max(0.0, now - (since or now)), token=token if granted else None, name=name,
                mode="shared" if "Share" in mode else "exclusive",
            )  # fmt: skip
            parties.append((tagged, party))
        return parties

    def _cycle(self, claim: Claim, error: SqlError) -> tuple[Link, ...]:
        """The server's own account of a deadlock, one link for each of its processes."""
        links: list[Link] = []
        for pid, _, key, _ in _DEADLOCK_LINE.findall(error.detail):
            wanted = claim.name if not links else f"advisory lock [{key}]"
            links.append(Link(f"backend {pid}", "", "", int(pid), "", "a lock of this cycle", wanted))
        return tuple(links)

    # What it cannot do

    async def break_lock(self, kind: str, name: str, force: bool, until: float) -> NoReturn:
        raise AssertionError("guarantees.recorded is False")

    async def list(self, prefix: str, kind: str, until: float) -> NoReturn:
        raise AssertionError("guarantees.recorded is False")

    async def raise_tokens(self, above: int, until: float) -> NoReturn:
        raise Unsupported(
            self.address, "raising tokens: they are the server's clock", "postgresql:// without ?recipe=advisory"
        )
