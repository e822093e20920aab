"""What people do with locks in ZooKeeper: look, break; and handing over, which needs the same steps."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kazoo.exceptions import BadVersionError, NoNodeError

from holdfast.core.names import matches
from holdfast.core.table.commands import BreakUnderWay, Done, SessionOver
from holdfast.engines.zookeeper.asking import Dropped, LinkOver
from holdfast.engines.zookeeper.claims import WITHDRAWN, ClaimVerbs
from holdfast.engines.zookeeper.ledger import Condemned, Entry
from holdfast.engines.zookeeper.line import Stand, count_holding, in_order, letters, unquoted
from holdfast.engines.zookeeper.link import Link
from holdfast.engines.zookeeper.node_data import packed, removal, unpacked
from holdfast.engines.zookeeper.part import estimated
from holdfast.engines.zookeeper.queue_view import QueueView
from holdfast.errors import EngineFailure
from holdfast.model import Claim, Gone, Granted, LockInfo, Party

BROKEN = "an operator broke it"
HANDED_OVER = "it was handed over"
MOST_LISTED = 10_000
ANY_VERSION = -1
MAY_GO = 8
"""How many more than the holders are read where only these are wanted: a holder may go meanwhile."""
NOTES_SEEN = 4
"""Of how many before it a waiter reads the notes, when it looks by itself."""


class PeopleVerbs(ClaimVerbs):
    """Inspect, list, break, hand over, adopt."""

    # Looking

    async def inspect(self, kind: str, name: str, until: float) -> LockInfo:
        while True:
            link = await self.looking(until)
            try:
                return await self._inspect(link, kind, name, until)
            except LinkOver:
                continue

    async def holders(self, kind: str, name: str, until: float) -> tuple[Party, ...]:
        """The holders alone: the nodes of the waiters behind them are not read."""
        while True:
            link = await self.looking(until)
            try:
                return (await self._inspect(link, kind, name, until, whole=False)).holders
            except LinkOver:
                continue

    async def _inspect(self, link: Link, kind: str, name: str, until: float, *, whole: bool = True) -> LockInfo:
        parent = self.layout.line(kind, name)
        stands = in_order(await self.children(link, parent, until, synced=True))
        if not whole:
            # A permit is taken by a claim with fewer before it than the limit.
            most = max([count_holding(stands), *(stand.limit for stand in stands)])
            del stands[most + MAY_GO :]
        paths = [f"{parent}/{stand.node}" for stand in stands]
        # Who only looks does not keep the base from being raised, and has to see what it is now.
        *found, base = await self.contents(link, [*paths, self.layout.base], until)
        if base is not None:
            self.take_base(link, base[0])
        # Those that went between the two looks are left out of the line, too.
        line = [(stand, *one) for stand, one in zip(stands, found, strict=True) if one is not None]
        holding = count_holding([stand for stand, _, _ in line])
        holders, waiters = [], []
        now = link.clock.shown()
        for index, (stand, data, stat) in enumerate(line):
            about = unpacked(data)
            held = "slot" in about if stand.limit else index < holding
            party = self._party(link, stand, about, stat, name, now, held)
            if held:
                holders.append(party)
            elif stand.waits:
                waiters.append(party)
        limit = line[0][0].limit if line else 0
        return LockInfo(kind, name, tuple(holders), tuple(waiters), limit)

    def _party(
        self, link: Link, stand: Stand, about: dict[str, Any], stat: Any, name: str, now: float, held: bool
    ) -> Party:
        since = (stat.mtime if held else stat.ctime) / 1000
        token = about.get("token") or estimated(link, stat.mzxid)
        return Party(
            claim=stand.claim, owner=about.get("owner", ""), app=about.get("app", ""), host=about.get("host", ""),
            pid=about.get("pid", 0), thread=about.get("thread", ""), note=about.get("note", ""), since=since,
            age=max(0.0, now - since), mode="exclusive" if stand.exclusive else "shared",
            token=token if held else None, slot=about.get("slot"), name=name,
        )  # fmt: skip

    async def list(self, prefix: str, kind: str, until: float) -> tuple[LockInfo, ...]:
        while True:
            link = await self.looking(until)
            try:
                infos = []
                for its_kind, name in await self.names(link, kind, prefix, until):
                    info = await self._inspect(link, its_kind, name, until)
                    if info.holders or info.waiters:
                        infos.append(info)
                return tuple(infos)
            except LinkOver:
                continue

    async def names(self, link: Link, kind: str, prefix: str, until: float) -> Sequence[tuple[str, str]]:
        """The kinds and names of all lines with somebody in them."""
        all_kinds = kind.endswith(".")
        short = kind.partition(".")[2]
        kinds = sorted(await self.children(link, self.layout.claims, until, synced=True)) if all_kinds else [short]
        found: list[tuple[str, str]] = []
        for one in kinds:
            folder = f"{self.layout.claims}/{one}"
            wanted = sorted((unquoted(segment), segment) for segment in await self.children(link, folder, until))
            wanted = [(name, segment) for name, segment in wanted if matches(prefix, name)]
            lines = await self.contents(link, [f"{folder}/{segment}" for _, segment in wanted], until)
            for (name, _), line in zip(wanted, lines, strict=True):
                if line is not None and line[1].numChildren:
                    found.append((self.layout.kind(one), name))
        return found[:MOST_LISTED]

    # Breaking

    async def break_lock(self, kind: str, name: str, force: bool, until: float) -> BreakUnderWay:
        link = await self.looking(until)
        end = self._remove if force else self._tell
        told = []
        try:
            held = await self._held(link, kind, name, until)
            while held:
                gone = set()
                for stand, about in held:
                    if await end(link, kind, name, stand, about, until):
                        told.append(stand.claim)
                    else:
                        gone.add(stand.number)
                if not gone:
                    break
                # One that was adopted meanwhile goes on in a node with the same number.
                held = [one for one in await self._held(link, kind, name, until) if one[0].number in gone]
        except LinkOver as over:
            raise EngineFailure(self.address, "the session ended meanwhile", "unknown") from over
        return BreakUnderWay(tuple(told))

    async def _held(self, link: Link, kind: str, name: str, until: float) -> Sequence[tuple[Stand, dict[str, Any]]]:
        """The claims that hold, and what their nodes say."""
        parent = self.layout.line(kind, name)
        stands = in_order(await self.children(link, parent, until, synced=True))
        found = await self.contents(link, [f"{parent}/{stand.node}" for stand in stands], until)
        line = [(stand, unpacked(one[0])) for stand, one in zip(stands, found, strict=True) if one is not None]
        holding = count_holding([stand for stand, _ in line])
        return [
            (stand, about)
            for index, (stand, about) in enumerate(line)
            if ("slot" in about if stand.limit else index < holding)
        ]

    async def _tell(self, link: Link, kind: str, name: str, stand: Stand, about: dict[str, Any], until: float) -> bool:
        """Leave word for the holder's client; False if the claim is gone.

        Whatever the client does, the claim is removed one ttl from now.
        """
        parent, unanswered = self.layout.line(kind, name), False
        while True:
            note = await self._note(link, stand.session, until)
            if note is None:
                return await self._still_there(link, parent, stand, until) or unanswered
            path, kept, version = note
            kept["ended"][stand.claim] = BROKEN
            transaction = link.kazoo.transaction()
            transaction.check(f"{parent}/{stand.node}", ANY_VERSION)  # a claim that was adopted is not there any more
            transaction.set_data(path, packed(kept), version)
            await self.ready(link, until)
            try:
                done = await self.together(link, until, transaction)
            except Dropped:
                # The holder may have heard of it, and be gone when this is repeated.
                unanswered = True
                continue
            if not isinstance(done, Exception):
                self._condemn(kind, name, stand, kept["ttl"])
                return True
            if not isinstance(done, BadVersionError) and not await self._still_there(link, parent, stand, until):
                return unanswered

    async def _note(self, link: Link, session: str, until: float) -> tuple[str, dict[str, Any], int] | None:
        """Where word for a session is left, what is there already, and its version; None if the session is over."""
        path = self.layout.note(session)
        (found,) = await self.read(link, until, lambda kazoo: kazoo.get_async(path))
        if isinstance(found, NoNodeError):
            return None
        about = unpacked(found[0])
        about.setdefault("ended", {})
        return path, about, found[1].version

    def _condemn(self, kind: str, name: str, stand: Stand, ttl: float) -> None:
        key = f"{self.layout.line(kind, name)}/{stand.node}"
        self.ledger.condemned.setdefault(key, Condemned(kind, name, stand.node, self.io.now() + ttl))

    async def _remove(
        self, link: Link, kind: str, name: str, stand: Stand, about: dict[str, Any], until: float
    ) -> bool:
        """Remove the claim of another client, and tell its session in the same step if there still is one.

        False if the claim was gone already.
        """
        parent, unanswered = self.layout.line(kind, name), False
        while True:
            note = await self._note(link, stand.session, until)
            transaction = link.kazoo.transaction()
            record = removal(stand.claim, "broken", about.get("owner", ""), about.get("token"))
            transaction.set_data(parent, packed(record))
            transaction.delete(f"{parent}/{stand.node}")
            if about.get("slot") is not None:
                transaction.delete(f"{self.layout.slots(kind, name)}/{about['slot']}")
            if note is not None:
                path, kept, version = note
                kept["ended"][stand.claim] = BROKEN
                transaction.set_data(path, packed(kept), version)
            await self.ready(link, until)
            try:
                done = await self.together(link, until, transaction)
            except Dropped:
                unanswered = True
                continue
            if not isinstance(done, Exception):
                return True
            # Another client has written the note meanwhile, or the claim is gone, or its session's note.
            if not isinstance(done, BadVersionError) and not await self._still_there(link, parent, stand, until):
                return unanswered

    async def _still_there(self, link: Link, parent: str, stand: Stand, until: float) -> bool:
        (stat,) = await self.read(link, until, lambda kazoo: kazoo.exists_async(f"{parent}/{stand.node}"))
        return stat is not None

    async def sweep(self, until: float) -> Done:
        """Remove claims that were told to go and whose time is over."""
        removed = 0
        next_death: float | None = None
        for key, condemned in self.ledger.condemned.copy().items():
            left = condemned.due - self.io.now()
            if left > 0:
                next_death = left if next_death is None else min(next_death, left)
                continue
            link = await self.looking(until)
            (found,) = await self.contents(link, [key], until)
            if found is not None:
                (stand,) = in_order([condemned.node])
                about = unpacked(found[0])
                await self._remove(link, condemned.kind, condemned.name, stand, about, until)
                removed += 1
            self.ledger.condemned.pop(key, None)
        return Done(next_death=next_death, removed=removed)

    async def see_notes(self, entry: Entry, until: float) -> None:
        """Look whether somebody before us was told to go by a breaker who may be gone meanwhile."""
        claim, link = entry.claim, entry.link
        for stand in entry.view.first(NOTES_SEEN):
            if stand.node != entry.node:
                note = await self._note(link, stand.session, until)
                if note is not None and stand.claim in note[1]["ended"]:
                    self._condemn(claim.kind, claim.name, stand, note[1]["ttl"])

    # Handing over

    async def hand_over(self, claim: Claim, ticket: str, until: float) -> Done | Gone:
        entry = self.ledger.entry(claim)
        if self.ledger.member(claim.session) is None or entry is None or entry.token is None:
            return Gone(WITHDRAWN)
        if claim.id in entry.link.gone:
            return Gone(entry.link.gone[claim.id])
        data = {**entry.data, "ticket": ticket, "token": entry.token, "hold_left": entry.granted().hold_left}
        try:
            await self.ready(entry.link, until)
            written = await self.answer(entry.link, until, entry.link.kazoo.set_async(entry.path, packed(data)))
        except LinkOver:
            return Gone("its session is over")
        if isinstance(written, NoNodeError):
            return Gone(entry.link.gone.get(claim.id, "its node was removed"))
        entry.data = data
        return Done()

    async def adopt(self, claim: Claim, source: str, ticket: str, until: float) -> Granted | Gone | SessionOver:
        member = self.ledger.member(claim.session)
        if member is None:
            return SessionOver()
        link, parent = member.link, self.layout.line(claim.kind, claim.name)
        self.reserve_paths(member, claim)
        try:
            while True:
                stands = in_order(await self.children(link, parent, until, synced=True))
                own = next((stand for stand in stands if stand.claim == claim.id), None)
                if own is not None:
                    view = QueueView(link, parent, self.ledger.lock)
                    return await self._adopted(Entry(claim, link, parent, own.node, {}, view), until)
                sender = next((stand for stand in stands if stand.claim == source), None)
                note = None if sender is None else await self._note(link, sender.session, until)
                (found,) = [None] if sender is None else await self.contents(link, [f"{parent}/{sender.node}"], until)
                if sender is None or note is None or found is None:
                    return Gone("there is nothing left to adopt")
                if source in note[1]["ended"]:
                    return Gone(note[1]["ended"][source])
                about = unpacked(found[0])
                if not ticket or about.get("ticket") != ticket:
                    return Gone("the text is not the one that hand_over() gave last")
                node = f"{letters(claim)}.{claim.id}.{sender.node.rpartition('.')[2]}"
                view = QueueView(link, parent, self.ledger.lock)
                entry = Entry(claim, link, parent, node, member.describe(claim), view)
                if about.get("hold_left") is not None:
                    # It ends when the sender's hold would have ended, by the server's clock.
                    entry.data["hold_left"], entry.data["handed_at"] = about["hold_left"], found[1].mtime
                if await self._pass_on(entry, sender, about, found[1].version, note, until):
                    return await self._adopted(entry, until)
        except LinkOver:
            return SessionOver()
        finally:
            if claim.id not in member.claims:
                member.paths.free(claim.id)

    async def _pass_on(
        self, entry: Entry, sender: Stand, about: dict[str, Any], version: int, note: tuple[str, dict[str, Any], int],
        until: float,
    ) -> bool:  # fmt: skip
        """One step: the sender's node goes, ours comes with its number, and its session is told. False: look again."""
        claim, parent = entry.claim, entry.parent
        path, kept, note_version = note
        kept["ended"][sender.claim] = HANDED_OVER
        slot = about.get("slot")
        if slot is not None:
            entry.data["slot"] = slot
        record = removal(sender.claim, "released", about.get("owner"), about.get("token"), adopter=claim.id)
        transaction = entry.link.kazoo.transaction()
        transaction.set_data(parent, packed(record))
        transaction.delete(f"{parent}/{sender.node}", version)
        transaction.create(entry.path, packed(entry.data), ephemeral=True)
        if slot is not None:
            slots = self.layout.slots(claim.kind, claim.name)
            transaction.delete(f"{slots}/{slot}")
            transaction.create(f"{slots}/{slot}", claim.id.encode(), ephemeral=True)
        transaction.set_data(path, packed(kept), note_version)
        await self.ready(entry.link, until)
        try:
            done = await self.together(entry.link, until, transaction)
        except Dropped:
            return False
        return not isinstance(done, Exception)

    async def _adopted(self, entry: Entry, until: float) -> Granted | Gone:
        """Our node is there: its creation was the grant."""
        (found,) = await self.contents(entry.link, [entry.path], until)
        if found is None:
            return Gone("it was broken at once")
        entry.data = unpacked(found[0])
        left = entry.data.get("hold_left")
        if left is not None:
            left = max(0.0, left - max(0.0, (found[1].ctime - entry.data["handed_at"]) / 1000))
            asked = entry.claim.max_hold
            entry.claim = replace(entry.claim, max_hold=left if asked is None else min(left, asked))
        member = self.ledger.members[entry.claim.session]
        entry.view = member.join(entry.parent)
        entry.view.add(entry.node)
        member.enrol(entry)
        self.ledger.used[entry.parent] = self.io.now()
        zxid = found[1].czxid
        while True:
            token = await self.token(entry.link, zxid, until)
            if token is not None:
                return entry.grant(token, entry.data.get("slot"))
            await self.ready(entry.link, until)
            with suppress(Dropped):
                written = await self.answer(entry.link, until, entry.link.kazoo.set_async(entry.path, found[0]))
                if isinstance(written, Exception):
                    self.ledger.forget(entry)
                    return Gone("it was broken at once")
                zxid = written.mzxid
