"""What the recipes share: a session's claims, what it watches, and how it is kept alive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

from holdfast.core.table.commands import (
    GONE,
    GRANTED,
    OLDER_STATE,
    RECONNECTED,
    Deadlocked,
    Done,
    Notice,
    Opened,
    Renewed,
    SessionOver,
)
from holdfast.core.table.rows import Session
from holdfast.core.waitgraph import Waiting, find_cycle
from holdfast.engines.engine import Deliver
from holdfast.engines.etcd import steps
from holdfast.engines.etcd.keys import Keys, Row, end_of, lease_of, read_row, session_of
from holdfast.engines.etcd.ledger import Entry, Ledger, Overdue
from holdfast.engines.etcd.line import MISSING
from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.outcome import VerbCall
from holdfast.engines.etcd.token_base import read_base
from holdfast.engines.etcd.watcher import DELETED, Watcher
from holdfast.engines.etcd.wire import (
    LEASE_GRANT,
    LEASE_KEEP_ALIVE,
    LEASE_REVOKE,
    LEASE_TIME_TO_LIVE,
    Answer,
    LeaseExists,
    LeaseGone,
    Request,
)
from holdfast.errors import EngineFailure
from holdfast.model import Claim, Gone, Granted, Link, Party, Place
from holdfast.runtime import clock
from holdfast.runtime.io import Io

BROKEN = "it was broken by an operator"
HELD_TOO_LONG = "it was held longer than max_hold"
SEEN_FOR = 1.0
"""Seconds for which one look at what is ahead serves all claims of a client that wait for it."""
PAGE = 1_000
"""How many keys are read at once."""


class Shared:
    """What all verbs of one client share."""

    def __init__(self, address: str, keys: Keys, watcher: Watcher) -> None:
        self.address, self.keys, self.watcher = address, keys, watcher
        self.ledger = Ledger(address, watcher.lock)
        self.ledger.wake = self._wake
        watcher.reconnected = self.reconnected
        self.deliver: Deliver

    def reconnected(self) -> None:
        """The watch stream was cut and made again: etcd may be another one, or have an older state."""
        self.deliver(Notice("", "", RECONNECTED))

    def _wake(self, claim_id: str) -> None:
        self.deliver(Notice(session_of(claim_id), claim_id, GRANTED))


class Known:
    """One client's session, through one Io."""

    def __init__(self, shared: Shared, io: Io) -> None:
        self.shared, self.io = shared, io
        self.keys, self.ledger, self.watcher = shared.keys, shared.ledger, shared.watcher

    async def call(self, request: Request, verb: VerbCall) -> Answer:
        """Send a request; raises LeaseGone if what it writes under has ended."""
        answer = await verb.send(self.io, request)
        self.ledger.revision = max(self.ledger.revision, answer.revision)
        return answer

    async def withdraw(self, claim: Claim, unanswered: bool, verb: VerbCall) -> None:
        """Set by the verbs: withdraw a claim."""
        raise NotImplementedError

    # The session

    async def open(self, session: Session, verb: VerbCall) -> Opened | SessionOver:
        """Begin a session: a lease, and a record of who it is; then the base of its tokens is read."""
        lease = lease_of(session.id)
        asked = message("LeaseGrantRequest")(ID=lease, TTL=max(1, -int(-session.ttl // 1)))
        try:
            granted = (await self.call(Request(LEASE_GRANT, asked, changes=False), verb)).message.TTL
        except LeaseExists:
            # An earlier try of this call: the id is new, so nobody else can have made it.
            granted = (await self._keep_alive(lease, verb)).message.TTL
        session = session._replace(ttl=float(granted))
        try:
            base, base_revision, revision = await read_base(self, session, verb)
        except LeaseGone:
            return SessionOver()
        self.watcher.unwatch_all()
        self.ledger.begin(session, base, base_revision)
        own = self.keys.session(session.id)
        self.watcher.watch("session", own, revision + 1, self._hear_session, end=end_of(own))
        return Opened(float(granted))

    def _hear_session(self, events: Sequence[Any] | None) -> None:
        """A note was left, or the session is over: the next heartbeat brings the reason."""
        own = self.keys.session(self.ledger.session.id)
        if events is None or any(event.type != DELETED or event.kv.key == own for event in events):
            self.shared.deliver(Notice(self.ledger.session.id, "", GONE))

    async def _keep_alive(self, lease: int, verb: VerbCall) -> Answer:
        request = Request(LEASE_KEEP_ALIVE, message("LeaseKeepAliveRequest")(ID=lease), changes=False)
        return await self.call(request, verb)

    async def renew(self, session: str, until: float) -> Renewed | SessionOver:
        """Keep the lease alive, then read the notes.

        A leader that was cut off does not know it yet, and goes on renewing leases that its
        successor counts differently. The read goes through a majority; if it comes from the same
        term, the leader that renewed was the real one.

        A cluster that was restored from a copy has a lower revision, at first.
        """
        verb = VerbCall(until)
        seen = self.ledger.revision
        own = self.keys.session(session)
        while True:
            kept = await self._keep_alive(lease_of(session), verb)
            if kept.message.TTL <= 0:
                return SessionOver()
            notes = await self.call(steps.look(own, end_of(own)), verb)
            if notes.revision < seen:
                return SessionOver(OLDER_STATE)
            if notes.term == kept.term:
                break
        found = list(notes.message.kvs)
        if not any(kv.key == own for kv in found):
            return SessionOver()
        gone: list[tuple[str, str]] = []
        for kv in found:
            if kv.key != own:
                claim_id = kv.key.decode().rpartition("/")[2]
                if self.ledger.get(claim_id) is not None:
                    gone.append((claim_id, kv.value.decode()))
                else:
                    await self.call(steps.step([], [steps.delete(kv.key)]), verb)
        return Renewed(float(kept.message.TTL), tuple(gone), self.ledger.next_death())

    async def strays(self, session: str, verb: VerbCall) -> list[Row]:
        """Claims under the session's lease that this client does not know, as etcd has them now."""
        lease, lines = lease_of(session), self.keys.lines
        asked = message("LeaseTimeToLiveRequest")(ID=lease, keys=True)
        listed = await self.call(Request(LEASE_TIME_TO_LIVE, asked, changes=False), verb)
        known = {entry.key for entry in self.ledger.entries.copy().values()}
        unknown = [key for key in listed.message.keys if key.startswith(lines) and key not in known]
        found = [kv for key in unknown for kv in (await self.call(steps.look(key), verb)).message.kvs]
        rows = [read_row(self.keys, kv) for kv in found if kv.lease == lease]
        self.ledger.strays = {row.record.claim.id: row for row in rows}
        return rows

    async def close(self, session: str, verb: VerbCall) -> Done:
        """End a session. Its record goes first: claims that end together with theirs have expired."""
        self.watcher.unwatch_all()
        try:
            await self.call(steps.step([], [steps.delete(self.keys.session(session))]), verb)
        except EngineFailure as error:
            # One that is full refuses even this, but ends leases.
            if error.outcome != "not done" and not verb.full:
                raise
        try:
            await self.call(Request(LEASE_REVOKE, message("LeaseRevokeRequest")(ID=lease_of(session))), verb)
        except LeaseGone:
            return Done()
        return Done()

    # Tries that came late

    def tombstone(self, claim: Claim) -> bytes:
        """What an enter has to find that is still on its way when its claim is over."""
        return steps.put(self.keys.tombstone(claim.id), b"", lease_of(claim.session))

    async def bury(self, claim: Claim, verb: VerbCall) -> None:
        """Let no enter of this claim have any effect from now on."""
        await self.call(steps.step([], [self.tombstone(claim)]), verb)

    def own(self, entry: Entry, second: Any) -> Any:
        """The claim's own key, if an earlier try of its enter has arrived; None if it was withdrawn before."""
        own, tombstone = (steps.kvs(response) for response in second.responses[:2])
        if own and not tombstone and read_row(self.keys, own[0]).record.claim.id == entry.claim.id:
            return own[0]
        self.ledger.forget(entry.claim.id, retire=True)
        return None

    async def refused(self, entry: Entry, answer: Answer, verb: VerbCall) -> None:
        """A claim that does not wait was not granted, and is not to be by a try that comes late."""
        if answer.repeated:
            await self.withdraw(entry.claim, True, verb)
        else:
            self.ledger.forget(entry.claim.id)

    # Waiting

    def watch_end(self, entry: Entry, key: bytes, start: int, end: bytes = b"") -> None:
        """Wake this claim when a key is removed (or one of a range)."""
        if entry.ahead == key:
            return
        entry.ahead = key
        claim, slots, before = entry.claim, bool(end), entry.before
        self._not_seen(before)

        def hear(events: Sequence[Any] | None) -> None:
            entry.called = True
            self._not_seen(before)
            if slots and events:
                entry.guess = int(events[-1].kv.key.rpartition(b"/")[2])
            elif events and before is not None and entry.before == before:
                entry.head = self._held_alone(events[-1].prev_kv, before)
            self.shared.deliver(Notice(claim.session, claim.id, GRANTED))

        self.watcher.watch(claim.id, key, start, hear, end=end, deletes_only=True, with_former=not slots, fresh=True)

    def _not_seen(self, before: tuple[bytes, int] | None) -> None:
        if before is not None:
            self.ledger.seen.pop(before, None)

    def _held_alone(self, former: Any, before: tuple[bytes, int]) -> bool:
        """Whether the key that is gone was the grant of a claim that held alone: then nothing was before it."""
        if (former.key, former.create_revision) != before:
            return False
        row = read_row(self.keys, former)
        return row.held and row.record.claim.mode == "exclusive" and row.slot is None

    def placed(self, entry: Entry, revision: int) -> None:
        """Its key was created at this revision."""
        if not entry.created:
            entry.created = revision
        if entry.queue is not None:
            entry.queue.place(entry)

    async def still_granted(self, entry: Entry, verb: VerbCall, asks: bool = False) -> Granted | Gone:
        """A grant that is known. Without `asks`, etcd is asked for it after each cut of the watch stream only."""
        streams = self.watcher.streams
        if asks or (entry.checked != streams and streams > 1):
            found = (await self.call(steps.look(entry.key), verb)).message.kvs
            if not any(kv.mod_revision == entry.revision for kv in found):
                return Gone(MISSING)
        entry.checked = streams
        return Granted(self.ledger.base + entry.revision, entry.slot, entry.hold_left)

    def behind_own(self, entry: Entry) -> Place | None:
        """The place of a claim that waits for an own one: etcd need not be asked."""
        if entry.head or not entry.chained or entry.queue is None:
            return None
        own = entry.queue.before(entry)
        if own is None:
            return None
        entry.position = max(1, min(entry.position, (0 if own.revision else own.position) + 1))
        return Place(entry.position, self._own_party(own) if own.revision else None)

    def remembered(self, entry: Entry) -> Place | None:
        """The place of a claim that looks by itself, if another one has looked for both; None: ask etcd."""
        if entry.revision or entry.head or entry.called or entry.queue is None:
            return None
        own = entry.queue.before(entry)
        if own is not None and not own.revision and (entry.chained or entry.claim.limit):
            return Place(max(1, entry.position))
        if entry.ahead and entry.before and self.ledger.seen.get(entry.before, -inf) > clock.now() - SEEN_FOR:
            return Place(max(1, entry.position))
        return None

    def unsent(self, entry: Entry) -> Place:
        """The place of a claim that is not sent yet: many of this client are before it."""
        first = entry.queue.first() if entry.queue is not None else None
        last = entry.queue.last() if entry.queue is not None else None
        entry.position = 1 + max(last.position if last is not None else 0, 0)
        return Place(entry.position, self._own_party(first) if first is not None and first.revision else None)

    def _own_party(self, entry: Entry) -> Party:
        """The holder, if it is a claim of this client."""
        row = Row(entry.key, entry.record.granted(), entry.created, entry.revision, entry.slot)
        return row.party(self.ledger.base)

    def stop_waiting(self, entry: Entry) -> None:
        """Nothing more is watched for this claim."""
        if entry.ahead:
            entry.ahead = b""
            self.watcher.unwatch(entry.claim.id, entry.revision)

    async def gone(self, entry: Entry, session_lives: bool, verb: VerbCall) -> Gone | SessionOver:
        """The claim's own key is not there any more."""
        if entry.doubtful and session_lives:
            await self.bury(entry.claim, verb)
        self.stop_waiting(entry)
        self.ledger.forget(entry.claim.id, retire=True)
        return Gone(MISSING) if session_lives else SessionOver()

    # Those whose time is counted

    def count_down(self, row: Row) -> None:
        """Somebody who is waited for may hold no longer than its `max_hold`, counted from when it was first seen."""
        if row.held and row.record.claim.max_hold is not None:
            self.ledger.count_down(row, row.record.claim.max_hold, HELD_TOO_LONG)

    def told(self, marks: Any) -> None:
        """Claims that were told to go are removed one ttl after that was first seen."""
        for kv in marks:
            row = read_row(self.keys, message("KeyValue").FromString(kv.value))
            self.ledger.count_down(row, row.record.ttl, BROKEN)

    async def sweep(self, until: float) -> Done:
        """Remove claims of others whose time is over; leases end by themselves."""
        verb = VerbCall(until)
        removed = 0
        for each in self.ledger.due():
            try:
                removed += await self._remove(each, verb)
            except EngineFailure:
                self.ledger.overdue.setdefault(each.row.key, each)
                raise
        return Done(next_death=self.ledger.next_death(), removed=removed)

    async def _remove(self, overdue: Overdue, verb: VerbCall) -> int:
        row, claim = overdue.row, overdue.row.record.claim
        mark = self.keys.told(claim.kind, claim.name) + claim.id.encode()
        note = steps.put(self.keys.note(claim.id), overdue.reason.encode(), lease_of(session_of(claim.id)))
        step = steps.step(
            [steps.unchanged(row.key, row.modified)],
            [steps.delete(row.key), steps.delete(mark), note],
            [steps.delete(mark)],
        )
        try:
            return int((await self.call(step, verb)).message.succeeded)
        except LeaseGone:
            return 0  # it ended with its session

    # Deadlocks

    async def rows(self, start: bytes, verb: VerbCall) -> list[Row]:
        """Every claim under a prefix, a page at a time, all as of one moment."""
        found: list[Row] = []
        key, end, revision = start, end_of(start), 0
        while True:
            answer = await self.call(steps.look(key, end, limit=PAGE, revision=revision), verb)
            found += (read_row(self.keys, kv) for kv in answer.message.kvs)
            if not answer.message.more:
                return found
            key, revision = answer.message.kvs[-1].key + b"\0", revision or answer.revision

    async def deadlock(self, entry: Entry, verb: VerbCall) -> Deadlocked | None:
        """Refuse a claim that would wait for ever; the one that arrived last is refused, and sees all the others."""
        claim = entry.claim
        if not self.ledger.busy(claim.owner):
            return None
        rows = {row.record.claim.id: row for row in await self.rows(self.keys.lines, verb)}
        if claim.id not in rows:
            return None
        cycle = find_cycle([Waiting(row.record.claim, row.order, row.held) for row in rows.values()], claim.id)
        # A cycle without a way home is one of others, and one that somebody later has closed is theirs to go.
        stranger = len(cycle) == 1 and cycle[0].waits.id == cycle[0].has.id
        if not cycle or stranger or any(rows[knot.waits.id].order > entry.created for knot in cycle):
            return None
        links = []
        for knot in cycle:
            record = rows[knot.waits.id].record
            links.append(
                Link(
                    record.claim.owner, record.app, record.host, record.pid, record.claim.thread, knot.has.name,
                    knot.waits.name,
                )
            )  # fmt: skip
        # Those who watch see that it was a deadlock; then it goes.
        mark = steps.put(entry.key, replace(entry.record, state="deadlock").pack(), lease_of(claim.session))
        await self.call(steps.step([steps.created_at(entry.key, entry.created)], [mark]), verb)
        await self.withdraw(claim, False, verb)
        return Deadlocked(tuple(links))
