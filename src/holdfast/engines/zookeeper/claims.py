"""Claims in ZooKeeper: taking a lock, standing in line, giving it back.

A claim is an ephemeral node with a sequence number. Creating it and listing the line travel
together. If the list shows it at the head, and shows that no node has come or gone since its
creation, the creation itself was the grant. In every other case a claim that is at the head writes to its
own node, and that write is the grant: its zxid is larger than those of all that held before.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import Delete, GetData, SetData
from kazoo.protocol.states import EventType

from holdfast.core.table.commands import GRANTED, Done, Notice, SessionOver, WrongLimit
from holdfast.engines.engine import Standing
from holdfast.engines.zookeeper.answer import Answer
from holdfast.engines.zookeeper.asking import Dropped, LinkOver
from holdfast.engines.zookeeper.connection import Message
from holdfast.engines.zookeeper.ledger import Entry, Member
from holdfast.engines.zookeeper.line import Position, in_order, position, prefix, read
from holdfast.engines.zookeeper.link import Batch, Link
from holdfast.engines.zookeeper.node_data import packed, removal, unpacked
from holdfast.engines.zookeeper.permits import PermitVerbs
from holdfast.engines.zookeeper.queue_view import QueueView
from holdfast.errors import EngineFailure
from holdfast.model import Claim, Gone, Granted, Place, Refused

WITHDRAWN = "it was withdrawn"
VANISHED = "its node was removed"

POLL_REST = 2.0
"""For how many seconds the list of a queue serves those who look without having been woken."""
PERMITS = "permits"
"""What a claim watches that waits for a permit, in place of a node."""

Entered = Standing | Refused | WrongLimit


class ClaimVerbs(PermitVerbs):
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
            return await self._poll(entry, until)
        except LinkOver:
            return SessionOver()
        except EngineFailure as error:
            if claim.id in member.sent and error.outcome == "not done":
                # Whatever failed came after the creation, which has to be withdrawn.
                raise EngineFailure(error.engine, error.problem, "unknown") from error
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
            raise EngineFailure(self.address, problem, "not done")

    async def look(self, claim: Claim, until: float) -> Standing | WrongLimit:
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
        assert not isinstance(standing, Refused)
        return standing

    async def _enter(self, member: Member, claim: Claim, until: float) -> Entered:
        """Join a queue."""
        parent = self.layout.line(claim.kind, claim.name)
        self.ledger.used[parent] = self.io.now()
        view, kept = member.join(parent), list[Entry]()
        try:
            return await self._create(member, claim, view, kept, until)
        finally:
            if not kept:
                member.part(view)

    async def _create(self, member: Member, claim: Claim, view: QueueView, kept: list[Entry], until: float) -> Entered:
        """Make the claim's node. A creation whose answer was lost is looked for before it is repeated."""
        link, parent, data = member.link, view.parent, member.describe(claim)
        packed_data = packed(data)
        unanswered = False

        def keep(node: str) -> Entry:
            entry = member.enrol(Entry(claim, link, parent, node, data, view))
            kept.append(entry)
            return entry

        while True:
            await self.ready(link, until, "unknown" if unanswered else "not done")
            try:
                if unanswered:
                    node = await self.find(link, parent, claim.id, until)
                    if node is not None:
                        view.add(node)
                        return await self._look(keep(node), until)
                kazoo = link.kazoo
                member.sent.add(claim.id)
                asked = [kazoo.create_in_order(f"{parent}/{prefix(claim)}", packed_data)]
                asked[0].rawlink(partial(_made, view))
                if view.own == 1 and not view.lists:
                    # Nobody else here can tell us how the queue looks.
                    asked.append(kazoo.get_children_async(parent, include_data=True))
                    asked[1].rawlink(partial(_listed, view))
                created, *listed = await self.answers(link, until, *asked)
            except Dropped:
                unanswered = True
                continue
            if isinstance(created, NoNodeError):
                await self._make_line(link, claim, until)
                continue
            path, stat = created
            entry = keep(path[len(parent) + 1 :])
            if not listed or isinstance(listed[0], NoNodeError):
                return await self._look(entry, until)
            children, above = listed[0]
            zxid = None
            if above.pzxid == stat.czxid:
                # Nobody has come or gone between: at the moment of its creation it was where the list shows it.
                then = position(in_order(children), entry.node)
                zxid = stat.czxid if then is not None and then.held else None
            return await self._stands(entry, zxid, until)

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

    async def _poll(self, entry: Entry, until: float) -> Entered:
        """Look without having been woken. One list of the queue serves all who do that within a while."""
        view, now = entry.view, self.io.now()
        if entry.token is None and now - view.listed_at >= POLL_REST:
            await self.refresh(view, until)
        standing = await self._stands(entry, None, until) if entry.asked is None else await self._look(entry, until)
        if isinstance(standing, Place) and now - view.notes_seen_at >= POLL_REST:
            view.notes_seen_at = now
            await self.see_notes(entry, until)
        return standing

    async def _look(self, entry: Entry, until: float) -> Entered:
        """How a claim stands now; the write that confirms its grant may be under way."""
        asked, entry.asked = entry.asked, None
        zxid = None
        if asked is not None:
            try:
                _, written = await self.answers(entry.link, until, *asked)
            except Dropped:
                return await self._stands(entry, None, until)
            if isinstance(written, Exception):
                return self._vanished(entry)
            zxid = written.mzxid if entry.confirmed else None
        elif entry.claim.limit and entry.token is None:
            await self.refresh(entry.view, until)
        return await self._stands(entry, zxid, until)

    async def _stands(self, entry: Entry, zxid: int | None, until: float) -> Entered:
        """What the queue means for a claim. `zxid` is of a write that is later than all that held before."""
        view = entry.view
        while True:
            if entry.token is not None:
                return entry.granted()
            if not view.knows(entry.node):
                zxid = None
                await self.refresh(view, until)
            found = view.position(entry.node)
            if found is None:
                return self._vanished(entry)
            if not view.knows(entry.node):
                continue
            if entry.claim.limit:
                other = await self.other_limit(entry, until)
                if isinstance(other, WrongLimit):
                    await self.withdraw(entry, until)
                    return other
                found = other or found
            if found.held:
                granted = await self._grant(entry, zxid, until)
                if granted is not None:
                    return granted
                if entry.claim.limit:
                    # No permit is free yet, whatever the queue says.
                    found = Position(False, 1, None, first=True)
            if not found.held:
                if not entry.claim.waits:
                    await self.withdraw(entry, until)
                    return Refused()
                entry.question = self._question(entry) if found.place == 1 and not entry.claim.limit else ()
                if await self._watch(entry, found, until):
                    return Place(max(1, found.place))
            zxid = None

    async def _grant(self, entry: Entry, zxid: int | None, until: float) -> Granted | Gone | None:
        """Take what is ours by our place in line; None if the line has to be looked at again."""
        if entry.claim.limit:
            return await self.take_slot(entry, until)
        link = entry.link
        while True:
            token = None if zxid is None else await self.token(link, zxid, until)
            if token is not None:
                return entry.grant(token)
            await self.ready(link, until)
            try:
                written = await self.answer(link, until, link.kazoo.set_async(entry.path, packed(entry.data)))
            except Dropped:
                continue
            if isinstance(written, Exception):
                return self._vanished(entry)
            zxid = written.mzxid

    async def _watch(self, entry: Entry, found: Position, until: float) -> bool:
        """Have ourselves woken when it may be our turn; False if that is so already."""
        link, claim, view = entry.link, entry.claim, entry.view
        slots = self.layout.slots(claim.kind, claim.name)
        blocker = PERMITS if found.first else found.blocker
        assert blocker is not None
        if entry.watching == blocker:
            return True
        woken = partial(self._woken, entry, blocker)
        await self.ready(link, until)
        kazoo = link.kazoo
        entry.watching = blocker
        path = slots if found.first else f"{entry.parent}/{blocker}"
        entry.unwatch()
        entry.watch = path, woken
        if claim.limit and not found.first:
            sent = kazoo.get_async(path, watch=woken)
        else:
            # A claim never has children. Unlike a watch on its data, this one sleeps when it is written to.
            sent = kazoo.get_children_async(path, watch=woken)
        try:
            watched = await self.answer(link, until, sent)
        except Dropped:
            entry.watching = None
            return False
        except BaseException:
            entry.watching = None
            raise
        if isinstance(watched, NoNodeError):
            entry.watching = None
            if found.first:
                await self.make_paths(link, [slots], until)
            else:
                view.gone(blocker)
            return False
        if not claim.limit:
            return True
        if found.first:
            if len(watched) >= claim.limit:
                return True
            # Whoever was before us may have gone before the watch was there. It is woken if a permit is taken.
            await self.refresh(view, until)
            now = view.position(entry.node)
            return now is not None and not now.held
        if "slot" not in unpacked(watched[0]):
            return True
        # It took its permit before the watch was there, and will not wake us. The permits do.
        if next((stand.limit for stand in view.stands() if stand.node == blocker), claim.limit) != claim.limit:
            entry.watching = None
            return False
        return await self._watch(entry, Position(False, found.place, None, first=True), until)

    def _question(self, entry: Entry) -> tuple[Message, ...]:
        """What is asked when the one before it goes: the record of its removal, then the write that confirms the grant.

        In this order: a write before the record could be older than a grant that was handed over between the two.
        """
        return Message(GetData(entry.parent, None)), Message(SetData(entry.path, packed(entry.data), -1))

    def _woken(self, entry: Entry, blocker: str, event: Any) -> None:
        """In the connection's thread."""
        if entry.watching == blocker:
            entry.watching = None
        tell = partial(self.engine.deliver, Notice(entry.claim.session, entry.claim.id, GRANTED))
        if event.type != EventType.DELETED or entry.claim.limit:
            tell()
            return
        entry.view.gone(blocker)
        if not entry.view.waits_for(entry.node, blocker):
            tell()
            return
        # It is our turn as good as certainly: from here, the grant is confirmed before anybody wakes up. Whoever
        # waits sleeps on until the answers are there, and takes no time from the thread that fetches them.
        entry.asked, entry.confirmed = [Answer(), Answer()], False
        entry.asked[0].rawlink(partial(self._judge, entry, blocker))
        asked = entry.asked
        for message, answer in zip(entry.question or self._question(entry), asked, strict=True):
            entry.link.kazoo.send(message, answer)
        Batch(asked, tell)

    def _judge(self, entry: Entry, blocker: str, answer: Answer) -> None:
        """Whether the one before it was removed, and not adopted: its remover leaves a record. In the same thread."""
        if answer.exception is not None:
            return
        stand = read(blocker)
        record = None if stand is None else unpacked(answer.value[0]).get(stand.claim)
        if record is not None and "adopter" not in record:
            entry.view.removed(blocker)
            entry.confirmed = True

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
                    data = member.describe(claim)
                    entry = member.enrol(Entry(claim, member.link, parent, node, data, member.join(parent)))
            if entry is not None:
                if claim.limit and entry.slot is None:
                    await self.find_slot(entry, until)
                await self.withdraw(entry, until)
            member.paths.free(claim.id)
        except LinkOver:
            return Done()
        return Done()

    async def withdraw(self, entry: Entry, until: float) -> bool:
        """Remove a claim's node; whether it was there. Waiters of one queue that leave are removed together."""
        link, removed = entry.link, partial(_removed, entry)
        if entry.removed:
            self.ledger.forget(entry)
            return True
        await self.ready(link, until, "unknown")
        if entry.token is None and entry.slot is None:
            entry.unwatch()
            sent = entry.view.withdrawals.send(entry.path, self._record(entry))
            sent.rawlink(removed)
            done = self.verdict(await self.answer(link, until, sent))
        else:
            done = await self.together(link, until, self.removal(entry), removed)
        self.ledger.used[entry.parent] = self.io.now()
        self.ledger.forget(entry)
        if isinstance(done, Exception):
            assert isinstance(done, NoNodeError), done
            return False
        return True

    def removal(self, entry: Entry) -> Any:
        """The transaction that removes a claim, and leaves word of it for those who watch."""
        claim = entry.claim
        transaction = entry.link.kazoo.transaction()
        # As they are: whoever is next waits for this, and kazoo looks at each path twice.
        transaction.operations += [SetData(entry.parent, packed(self._record(entry)), -1), Delete(entry.path, -1)]
        if entry.slot is not None:
            transaction.delete(f"{self.layout.slots(claim.kind, claim.name)}/{entry.slot}")
        return transaction

    def _record(self, entry: Entry) -> dict[str, Any]:
        """The record of a claim's removal by its own client."""
        how = "broken" if entry.claim.id in entry.link.gone else "released"
        return removal(entry.claim.id, how, entry.claim.owner, entry.token)

    async def see_notes(self, entry: Entry, until: float) -> None:
        """Look whether somebody before us was told to go; see the verbs for people."""


def _made(view: QueueView, answer: Answer) -> None:
    """A node was made, if it was; in the connection's thread."""
    if answer.exception is None:
        view.add(answer.value[0][len(view.parent) + 1 :])


def _listed(view: QueueView, answer: Answer) -> None:
    """The queue was listed; in the connection's thread."""
    if answer.exception is None:
        view.take(answer.value[0])


def _removed(entry: Entry, answer: Answer) -> None:
    """A claim's node was removed by its own client, if it was there; in the connection's thread."""
    if answer.exception is None and not any(isinstance(one, Exception) for one in answer.value):
        entry.view.removed(entry.node)
        entry.removed = True
