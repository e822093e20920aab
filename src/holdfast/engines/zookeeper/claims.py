"""Claims in ZooKeeper: taking a lock, standing in line, giving it back.

A claim is an ephemeral node with a sequence number. Creating it and listing the line travel
together. If the list shows it at the head, and shows that no node has come or gone since its
creation, the creation itself was the grant. In every other case a claim that is at the head writes to its
own node, and that write is the grant: its zxid is larger than those of all that held before.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.serialization import Delete, GetChildren, SetData
from kazoo.protocol.states import EventType

from holdfast.core.table.commands import GRANTED, Done, Notice, SessionOver, WrongLimit
from holdfast.engines.engine import Standing
from holdfast.engines.zookeeper.answer import Answer
from holdfast.engines.zookeeper.asking import Dropped, LinkOver
from holdfast.engines.zookeeper.connection import Message
from holdfast.engines.zookeeper.ledger import Entry, Member, packed, unpacked
from holdfast.engines.zookeeper.line import Position, Stand, in_order, position, prefix
from holdfast.engines.zookeeper.link import Batch, Link
from holdfast.engines.zookeeper.part import Part
from holdfast.errors import EngineUnavailable
from holdfast.model import Claim, Gone, Granted, Place, Refused

WITHDRAWN = "it was withdrawn"
VANISHED = "its node was removed"

Entered = Standing | Refused | WrongLimit


class ClaimVerbs(Part):
    """Enter, look, release, leave."""

    async def enter(self, claim: Claim, until: float) -> Entered:
        member = self.ledger.member(claim.session)
        if member is None:
            return SessionOver()
        try:
            entry = member.claims.get(claim.id)
            if entry is None:
                self.reserve_paths(member, claim)
                return await self._enter(member, claim, until)
            standing = await self._look(entry, until)
            if isinstance(standing, Place):
                await self.see_notes(entry, until)
            return standing
        except LinkOver:
            return SessionOver()
        except EngineUnavailable as error:
            if claim.id in member.sent and error.outcome == "not done":
                # Whatever failed came after the creation, which has to be withdrawn.
                raise EngineUnavailable(error.engine, error.problem, "unknown") from error
            raise
        finally:
            if claim.id not in member.sent and claim.id not in member.claims:
                member.paths.free(claim.id)
            member.sent.discard(claim.id)

    def reserve_paths(self, member: Member, claim: Claim) -> None:
        """Count the nodes of a claim before they are made; EngineUnavailable if they would be too many."""
        paths = [f"{self.layout.line(claim.kind, claim.name)}/{prefix(claim)}"]
        if claim.limit:
            paths.append(f"{self.layout.slots(claim.kind, claim.name)}/")
        if not member.paths.reserve(claim.id, *paths):
            problem = (
                f"this client has as many claims as ZooKeeper can end with one session (their paths take "
                f"{member.paths.MOST:,} bytes): use another client, fewer locks at a time, or shorter names"
            )
            raise EngineUnavailable(self.address, problem, "not done")

    async def look(self, claim: Claim, until: float) -> Standing:
        member = self.ledger.member(claim.session)
        if member is None:
            return SessionOver()
        entry = member.claims.get(claim.id)
        if entry is None:
            return Gone(WITHDRAWN)
        try:
            standing = await self._look(entry, until)
        except LinkOver:
            return SessionOver()
        assert not isinstance(standing, Refused | WrongLimit)
        return standing

    async def _enter(self, member: Member, claim: Claim, until: float) -> Entered:
        """Stand in line. A creation whose answer was lost is looked for before it is repeated."""
        link, parent = member.link, self.layout.line(claim.kind, claim.name)
        data = member.describe(claim)
        packed_data = packed(data)
        self.ledger.used[parent] = self.io.now()
        unanswered = False
        while True:
            await self.ready(link, until, "unknown" if unanswered else "not done")
            try:
                if unanswered:
                    node = await self.find(link, parent, claim.id, until)
                    if node is not None:
                        entry = member.claims[claim.id] = Entry(claim, link, parent, node, data)
                        return await self._look(entry, until)
                kazoo = link.kazoo
                member.sent.add(claim.id)
                created, listed = await self.answers(
                    link, until,
                    kazoo.create_async(
                        f"{parent}/{prefix(claim)}", packed_data, ephemeral=True, sequence=True, include_data=True
                    ),
                    kazoo.get_children_async(parent, include_data=True),
                )  # fmt: skip
            except Dropped:
                unanswered = True
                continue
            if isinstance(created, NoNodeError):
                await self._make_line(link, claim, until)
                continue
            path, stat = created
            node = path[len(parent) + 1 :]
            entry = member.claims[claim.id] = Entry(claim, link, parent, node, data)
            if isinstance(listed, NoNodeError):
                return await self._look(entry, until)
            children, above = listed
            # Nobody has come or gone between: at the moment of its creation it was where the list shows it.
            zxid = stat.czxid if above.pzxid == stat.czxid else None
            return await self._stands(entry, in_order(children), zxid, until)

    async def _make_line(self, link: Link, claim: Claim, until: float) -> None:
        paths = [self.layout.line(claim.kind, claim.name)]
        if claim.limit:
            paths.append(self.layout.slots(claim.kind, claim.name))
        while True:
            await self.ready(link, until)
            folders = [path.rpartition("/")[0] for path in paths]
            try:
                made = await self.answers(link, until, *(link.kazoo.create_async(path) for path in (*folders, *paths)))
            except Dropped:
                continue
            if not any(isinstance(one, NoNodeError) for one in made):
                return
            await self.make_namespace(link, until)

    async def find(self, link: Link, parent: str, claim_id: str, until: float) -> str | None:
        """The node of a claim whose creation was not answered, if it is ours; None once it can no longer come.

        After `sync` the server has seen all that was sent for this session before.
        """
        while True:
            await self.ready(link, until, "unknown")
            try:
                _, listed = await self.answers(
                    link, until, link.kazoo.sync_async(parent), link.kazoo.get_children_async(parent)
                )
                if isinstance(listed, NoNodeError):
                    return None
                node = next((stand.node for stand in in_order(listed) if stand.claim == claim_id), None)
                if node is None:
                    return None
                stat = await self.answer(link, until, link.kazoo.exists_async(f"{parent}/{node}"))
            except Dropped:
                continue
            # A node of a session that is dying would be gone under our hands.
            return node if stat is not None and stat.ephemeralOwner == link.session_id else None

    async def _look(self, entry: Entry, until: float) -> Entered:
        """How a claim stands now; if it may be at the head, the write that confirms it travels with the list."""
        if entry.token is not None:
            return entry.granted()
        link = entry.link
        while True:
            await self.ready(link, until)
            sent, entry.asked = entry.asked or [link.kazoo.get_children_async(entry.parent)], None
            try:
                listed, *written = await self.answers(link, until, *sent)
            except Dropped:
                continue
            if isinstance(listed, NoNodeError) or any(isinstance(one, Exception) for one in written):
                return self._vanished(entry)
            zxid = written[0].mzxid if written else None
            return await self._stands(entry, in_order(listed), zxid, until)

    async def _stands(self, entry: Entry, stands: list[Stand], zxid: int | None, until: float) -> Entered:
        """What the line means for a claim. `zxid` is of a write that is later than all that held before."""
        while True:
            found = position(stands, entry.node)
            if found is None:
                return self._vanished(entry)
            if found.wrong_limit:
                await self.withdraw(entry, until)
                return WrongLimit(found.wrong_limit)
            if found.held:
                granted = await self._grant(entry, zxid, until)
                if granted is not None:
                    return granted
            elif not entry.claim.waits:
                await self.withdraw(entry, until)
                return Refused()
            else:
                entry.question = self._question(entry) if found.place == 1 else ()
                if await self._watch(entry, found, until):
                    return Place(found.place)
            zxid = None
            (listed,) = await self.read(entry.link, until, lambda kazoo: kazoo.get_children_async(entry.parent))
            if isinstance(listed, NoNodeError):
                return self._vanished(entry)
            stands = in_order(listed)

    async def _grant(self, entry: Entry, zxid: int | None, until: float) -> Granted | Gone | None:
        """Take what is ours by our place in line; None if the line has to be looked at again."""
        if entry.claim.limit:
            return await self._take_slot(entry, until)
        link = entry.link
        while zxid is None:
            await self.ready(link, until)
            try:
                written = await self.answer(link, until, link.kazoo.set_async(entry.path, packed(entry.data)))
            except Dropped:
                continue
            if isinstance(written, Exception):
                return self._vanished(entry)
            zxid = written.mzxid
        return entry.grant(self.token(link, zxid))

    async def _take_slot(self, entry: Entry, until: float) -> Granted | None:
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
                return entry.grant(self.token(link, own[1].mzxid), had)
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
            return entry.grant(self.token(link, done[1].mzxid), slot)

    async def _watch(self, entry: Entry, found: Position, until: float) -> bool:
        """Have ourselves woken when it may be our turn; False if that is so already."""
        link, claim = entry.link, entry.claim
        blocker = found.blocker or "permits"
        if entry.watching == blocker:
            return True
        woken = partial(self._woken, entry, blocker)
        await self.ready(link, until)
        kazoo = link.kazoo
        entry.watching = blocker
        path = self.layout.slots(claim.kind, claim.name) if found.first else f"{entry.parent}/{blocker}"
        entry.unwatch()
        entry.watch = path, woken
        if not claim.limit or found.first:
            # A claim never has children. Unlike a watch on its data, this one sleeps when it is written to.
            sent = [kazoo.get_children_async(path, watch=woken)]
        else:
            sent = [kazoo.exists_async(path, watch=woken)]
        if claim.limit:
            sent.append(kazoo.get_children_async(entry.parent))
        try:
            watched, *listed = await self.answers(link, until, *sent)
        except Dropped:
            entry.watching = None
            return False
        except BaseException:
            entry.watching = None
            raise
        if watched is None or isinstance(watched, NoNodeError):
            entry.watching = None
            if found.first:
                await self.make_paths(link, [self.layout.slots(claim.kind, claim.name)], until)
            return False
        # Whoever took its permit before the watch was there will not wake us.
        return not listed or position(in_order(listed[0]), entry.node) == found

    def _question(self, entry: Entry) -> tuple[Message, ...]:
        """What is asked when the one before it goes: the line, then the write that confirms the grant.

        In this order: a write before the list could be older than a grant that was handed over between the two.
        """
        return Message(GetChildren(entry.parent, None)), Message(SetData(entry.path, packed(entry.data), -1))

    def _woken(self, entry: Entry, blocker: str, event: Any) -> None:
        """In the connection's thread."""
        if entry.watching == blocker:
            entry.watching = None
        tell = partial(self.engine.deliver, Notice(entry.claim.session, entry.claim.id, GRANTED))
        if event.type == EventType.DELETED and entry.question and not entry.claim.limit:
            # It is our turn as good as certainly: from here, the grant is confirmed before anybody wakes up. Whoever
            # waits sleeps on until the answers are there, and takes no time from the thread that fetches them.
            entry.asked = [Answer(), Answer()]
            for message, answer in zip(entry.question, entry.asked, strict=True):
                entry.link.kazoo.send(message, answer)
            Batch(entry.asked, tell)
        else:
            tell()

    def _vanished(self, entry: Entry) -> Gone:
        reason = entry.link.gone.get(entry.claim.id, VANISHED)
        self.ledger.forget(entry)
        return Gone(reason)

    # Giving back

    async def release(self, claim: Claim, until: float) -> Done | Gone:
        entry = self.ledger.entry(claim)
        member = self.ledger.member(claim.session)
        if member is None:
            return Gone("its session is over")
        if entry is None:
            return Gone(WITHDRAWN)
        reason = entry.link.gone.get(claim.id, VANISHED)
        try:
            return Done() if await self.withdraw(entry, until) else Gone(reason)
        except LinkOver:
            return Gone("its session is over")

    async def leave(self, claim: Claim, unanswered: bool, until: float) -> Done:
        member = self.ledger.member(claim.session)
        if member is None:
            return Done()
        try:
            entry = member.claims.get(claim.id)
            if entry is None and unanswered:
                parent = self.layout.line(claim.kind, claim.name)
                node = await self.find(member.link, parent, claim.id, until)
                if node is not None:
                    entry = member.claims[claim.id] = Entry(claim, member.link, parent, node, member.describe(claim))
            if entry is not None:
                if claim.limit and entry.slot is None:
                    await self._find_slot(entry, until)
                await self.withdraw(entry, until)
            member.paths.free(claim.id)
        except LinkOver:
            return Done()
        return Done()

    async def _find_slot(self, entry: Entry, until: float) -> None:
        """The permit that a claim may have taken without hearing of it."""
        _, own = await self.read(
            entry.link, until,
            lambda kazoo: kazoo.sync_async(entry.path), lambda kazoo: kazoo.get_async(entry.path),
        )  # fmt: skip
        if not isinstance(own, NoNodeError):
            entry.slot = unpacked(own[0]).get("slot")

    async def withdraw(self, entry: Entry, until: float) -> bool:
        """Remove a claim's node; whether it was there."""
        await self.ready(entry.link, until, "unknown")
        done = await self.together(entry.link, until, self.removal(entry))
        self.ledger.used[entry.parent] = self.io.now()
        self.ledger.forget(entry)
        if isinstance(done, Exception):
            assert isinstance(done, NoNodeError), done
            return False
        return True

    def removal(self, entry: Entry) -> Any:
        """The transaction that removes a claim, and leaves word of it for those who watch."""
        claim = entry.claim
        how = "broken" if claim.id in entry.link.gone else "released"
        transaction = entry.link.kazoo.transaction()
        record = {"claim": claim.id, "owner": claim.owner, "token": entry.token, "how": how}
        # As they are: whoever is next waits for this, and kazoo looks at each path twice.
        transaction.operations += [SetData(entry.parent, packed(record), -1), Delete(entry.path, -1)]
        if entry.slot is not None:
            transaction.delete(f"{self.layout.slots(claim.kind, claim.name)}/{entry.slot}")
        return transaction

    async def see_notes(self, entry: Entry, until: float) -> None:
        """Look whether somebody before us was told to go; see the verbs for people."""
