"""Permits of a semaphore in ZooKeeper: a node for each that is taken."""

from __future__ import annotations

from contextlib import suppress

from kazoo.exceptions import NodeExistsError, NoNodeError

from holdfast.core.table.commands import WrongLimit
from holdfast.engines.zookeeper.asking import Dropped
from holdfast.engines.zookeeper.ledger import Entry
from holdfast.engines.zookeeper.line import Position, Stand
from holdfast.engines.zookeeper.node_data import packed, unpacked
from holdfast.engines.zookeeper.part import Part
from holdfast.model import Granted

OTHERS_SEEN = 8
"""Of how many claims with another limit it is read whether they hold."""


class PermitVerbs(Part):
    """Take a permit, and see who holds one by another limit."""

    async def take_slot(self, entry: Entry, until: float) -> Granted | None:
        """Take a free permit: its node and the word of it in ours are one step, whose zxid is the token."""
        claim, link = entry.claim, entry.link
        slots = self.layout.slots(claim.kind, claim.name)
        while True:
            found, own = await self.read(
                link, until, lambda kazoo: kazoo.get_children_async(slots), lambda kazoo: kazoo.get_async(entry.path)
            )
            if isinstance(own, NoNodeError):
                return None
            if isinstance(found, NoNodeError):
                await self.make_paths(link, [slots], until)
                continue
            had = unpacked(own[0]).get("slot")
            if had is not None:
                # It was taken, and only the answer was lost.
                token = await self.token(link, own[1].mzxid, until)
                if token is not None:
                    return entry.grant(token, had)
                await self.ready(link, until)
                with suppress(Dropped):
                    await self.answer(link, until, link.kazoo.set_async(entry.path, own[0]))
                continue
            taken = {int(number) for number in found}
            slot = next((number for number in range(claim.limit) if number not in taken), None)
            if slot is None:
                return None
            data = {**entry.data, "slot": slot}
            transaction = link.kazoo.transaction()
            transaction.create(f"{slots}/{slot}", claim.id.encode(), ephemeral=True)
            transaction.set_data(entry.path, packed(data))
            try:
                done = await self.together(link, until, transaction)
            except Dropped:
                continue
            if isinstance(done, NodeExistsError | NoNodeError):
                continue
            assert not isinstance(done, Exception)
            entry.data = data
            token = await self.token(link, done[1].mzxid, until)
            if token is not None:
                return entry.grant(token, slot)

    async def other_limit(self, entry: Entry, until: float) -> WrongLimit | Position | None:
        """What claims before ours with another limit mean: refused if one holds, else we wait until the first is gone.

        One that does not hold may be about to withdraw, because it was wrong itself.
        """
        others: list[Stand] = []
        for stand in entry.view.stands():
            if stand.node == entry.node or len(others) == OTHERS_SEEN:
                break
            if stand.limit != entry.claim.limit:
                others.append(stand)
        if not others:
            return None
        found = await self.contents(entry.link, [f"{entry.parent}/{stand.node}" for stand in others], until)
        there = [(stand, unpacked(one[0])) for stand, one in zip(others, found, strict=True) if one is not None]
        for stand, about in there:
            if "slot" in about:
                return WrongLimit(stand.limit)
        if there:
            return Position(False, 1, there[0][0].node)
        await self.refresh(entry.view, until)
        return await self.other_limit(entry, until)

    async def find_slot(self, entry: Entry, until: float) -> None:
        """The permit that a claim may have taken without hearing of it."""
        _, own = await self.read(
            entry.link, until,
            lambda kazoo: kazoo.sync_async(entry.path), lambda kazoo: kazoo.get_async(entry.path),
        )  # fmt: skip
        if not isinstance(own, NoNodeError):
            entry.slot = unpacked(own[0]).get("slot")
