"""Sessions in ZooKeeper: opened, proven alive by a write, ended.

A session of Holdfast is a session of ZooKeeper, with two ephemeral nodes: one that its heartbeat
writes, and one where others leave notes. The heartbeat is a transaction that writes the first only
if the second has not changed. A read would be answered by a server that has lost its leader, which
meanwhile lets the session expire; a write that is confirmed was seen by a majority.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, UnimplementedError
from kazoo.protocol.states import EventType

from holdfast.core.table.commands import GONE, OLDER_STATE, Done, Notice, Opened, Renewed, SessionOver
from holdfast.core.table.rows import Session
from holdfast.engines.zookeeper.asking import Dropped, Late, LinkOver
from holdfast.engines.zookeeper.ledger import Member
from holdfast.engines.zookeeper.life import SHARE, Life, Request, granted, proven
from holdfast.engines.zookeeper.link import Link
from holdfast.engines.zookeeper.node_data import packed, unpacked
from holdfast.engines.zookeeper.part import Part
from holdfast.engines.zookeeper.tidying import Tidier
from holdfast.errors import EngineFailure

MOST_NOTES = 200


class SessionVerbs(Part):
    """Open, renew, close."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tidier = Tidier(self)

    async def open_session(self, session: Session, until: float) -> Opened:
        sent = self.io.now()
        link = Link(self.engine.place, session.ttl, beats=True)
        link.counted = self.engine.counted
        link.shortened = partial(self.engine.link_shortened, session.id)
        link.start()
        try:
            await self._register(link, session, until)
        except LinkOver as over:
            link.close()
            raise EngineFailure(self.address, f"the session ended at once: {over}", "not done") from over
        except BaseException:
            link.say_farewell()
            link.close()
            raise
        with self.ledger.lock:
            older = [member.link for member in self.ledger.members.values()]
            life = Life(sent, self.io.now(), link.negotiated, link.attached_at)
            member = Member(self.ledger.lock, link, session, life)
            self.ledger.members = {session.id: member}
            self.engine.streams.clear()
        for other in older:
            # It was said to be lost. So it must not go on keeping others out.
            other.say_farewell()
        link.changed = partial(self.engine.link_changed, session.id)
        return Opened(proven(link.negotiated))

    async def _register(self, link: Link, session: Session, until: float) -> None:
        """Make the session's nodes, then read the base: it cannot be raised while there is a session."""
        layout, kazoo = self.layout, link.kazoo
        while True:
            await self.ready(link, until)
            note, beat = layout.note(session.id), layout.session(session.id)
            about = packed({"ttl": link.negotiated, "ended": {}})
            # The first: a server that does not know this request refuses it before it answers what came earlier.
            alive = kazoo.create_async(beat, b"", ephemeral=True, include_data=True)
            try:
                *made, base, found = await self.answers(
                    link, until,
                    alive,
                    kazoo.create_async(note, about, ephemeral=True),
                    kazoo.get_async(layout.base),
                    kazoo.get_async(note, watch=partial(self._noted, link, session.id)),
                )  # fmt: skip
            except Dropped:
                # With its refusal it closes the connection, and what else was asked is lost.
                if isinstance(alive.exception, UnimplementedError):
                    raise self._too_old() from None
                continue
            if isinstance(made[0], UnimplementedError):
                raise self._too_old()
            if any(isinstance(one, NoNodeError) for one in (*made, base)):
                await self.make_namespace(link, until)
                continue
            assert all(isinstance(one, str | tuple | NodeExistsError) for one in made)
            if isinstance(made[0], tuple):
                link.clock.note(made[0][1])
            self.take_base(link, base[0])
            link.notes_version, link.beat_version = found[1].version, 0
            return

    def _too_old(self) -> EngineFailure:
        return EngineFailure(self.address, "ZooKeeper is too old: 3.5 or newer is needed", "not done")

    def _noted(self, link: Link, session: str, event: Any) -> None:
        """Somebody has left word, or the connection broke and we do not know; in the connection's thread."""
        if event.type != EventType.DELETED:
            link.noted = True
            self.engine.deliver(Notice(session, session, GONE))

    async def renew(self, session: str, until: float) -> Renewed | SessionOver:
        member = self.ledger.member(session)
        if member is None:
            return SessionOver()
        link = member.link
        if not link.connected:
            raise EngineFailure(self.address, "the connection is lost", "not done")
        sent, attached_at, negotiated = self.io.now(), link.attached_at, link.negotiated
        try:
            over = await self._beat(link, session, until)
            if over is not None:
                link.say_farewell()
                return over
            link.unanswered = 0
            good = member.life.confirm(Request(sent, self.io.now()), negotiated, attached_at)
        except LinkOver:
            return SessionOver()
        except Late:
            # Nothing else notices a server that stands still: kazoo's own pings are off. Where there is no other
            # server, it may be on the point of answering.
            link.unanswered += 1
            if len(self.engine.place.hosts) > 1 or link.unanswered > 1:
                link.hang_up()
            raise
        with suppress(EngineFailure, LinkOver):  # another day: the heartbeat itself was answered
            await self.set_aside(link, link.beat_zxid, until, early=True)
            await self.tidier.step(link, until)
        gone = tuple((id_, reason) for id_, reason in link.gone.copy().items() if id_ in member.claims)
        return Renewed(granted(min(good, link.negotiated * SHARE)), gone)

    async def _beat(self, link: Link, session: str, until: float) -> SessionOver | None:
        """Prove that we live and have read what was left for us; SessionOver if the session's nodes are not there.

        Also if an earlier heartbeat is not there: an ensemble that was put back to an earlier copy.
        """
        note, beat = self.layout.note(session), self.layout.session(session)
        before = link.beat_version
        while True:
            if link.noted and not await self._read_notes(link, session, until):
                return SessionOver()
            transaction = link.kazoo.transaction()
            transaction.check(note, link.notes_version)
            transaction.set_data(beat, b"")
            done = await self.together(link, until, transaction, first=True)
            if isinstance(done, BadVersionError):
                link.noted = True
                continue
            if isinstance(done, Exception):
                return SessionOver()
            if done[1].version <= before:
                return SessionOver(OLDER_STATE)
            link.clock.note(done[1])
            link.beat_zxid, link.beat_version = done[1].mzxid, max(link.beat_version, done[1].version)
            return None

    async def _read_notes(self, link: Link, session: str, until: float) -> bool:
        link.noted = False
        path = self.layout.note(session)
        watch = partial(self._noted, link, session)
        (found,) = await self.answers(link, until, link.kazoo.get_async(path, watch=watch))
        if isinstance(found, NoNodeError):
            return False
        data, stat = found
        link.notes_version = stat.version
        about = unpacked(data)
        ended: dict[str, str] = about.get("ended", {})
        member = self.ledger.members.get(session)
        claims = {} if member is None else member.claims
        link.gone.update((id_, reason) for id_, reason in ended.items() if id_ in claims)
        if len(ended) > MOST_NOTES:
            # What has left already is of no use to anybody. If somebody writes at the same time, another day.
            about["ended"] = {id_: reason for id_, reason in ended.items() if id_ in claims}
            await self.answer(link, until, link.kazoo.set_async(path, packed(about), stat.version))
        return True

    async def _leave(self, member: Member, until: float) -> None:
        """Give back all that a session has, over the next connection if one is lost meanwhile."""
        while True:
            await self.ready(member.link, until)
            try:
                await self.tidier.leave_all(member, until)
                return
            except Dropped:
                continue

    async def close_session(self, session: str, until: float) -> Done:
        member = self.ledger.members.pop(session, None)
        if member is None or member.link.over is not None:
            return Done()
        link = member.link
        try:
            await self._leave(member, until)
            link.say_farewell()
            signal = self.io.signal()
            link.when_over(signal.set)
            if not await self.io.wait(signal, until):
                raise Late(self.address, "no answer came in time", "unknown")
        except LinkOver:
            return Done()
        finally:
            link.close()
        return Done()
