"""The verbs of an etcd cluster. One source for threads and tasks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from holdfast.core.names import matches
from holdfast.core.table.commands import (
    BreakUnderWay,
    CellValue,
    Done,
    Letters,
    Mismatch,
    Opened,
    SessionOver,
)
from holdfast.core.table.rows import WITHDRAWN, Session
from holdfast.engines.etcd import cells, steps
from holdfast.engines.etcd.events import Subscriptions
from holdfast.engines.etcd.hold_clock import HoldClock, clock_of
from holdfast.engines.etcd.keys import Row, lease_of, new_record, read_row, session_of
from holdfast.engines.etcd.ledger import Entry
from holdfast.engines.etcd.line import MISSING, Line
from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.outcome import VerbCall
from holdfast.engines.etcd.permits import Permits
from holdfast.engines.etcd.session import BROKEN, HELD_TOO_LONG, Known, Shared
from holdfast.engines.etcd.token_base import raise_base
from holdfast.engines.etcd.wire import LeaseGone, Request
from holdfast.errors import EngineFailure
from holdfast.model import Claim, Gone, LockInfo
from holdfast.runtime import clock
from holdfast.runtime.io import Io, Signal

HANDED_OVER = "it was handed over and adopted elsewhere"
ENDS = "ends"
"""Releases and withdrawals of one lock have no order among themselves: each touches the keys of its own claim."""
VOID = "there is nothing to adopt: it was adopted already, released, or its sender's session has ended"

_KeyValue = message("KeyValue")


class EtcdVerbs(Known):
    """Speaks to one cluster through an Io."""

    def __init__(self, shared: Shared, io: Io, bell: Signal, subscriptions: Subscriptions) -> None:
        super().__init__(shared, io)
        self.bell, self.subscriptions = bell, subscriptions
        self.line, self.permits = Line(self), Permits(self)

    def _recipe(self, claim: Claim) -> Line | Permits:
        return self.permits if claim.limit else self.line

    # Sessions

    async def open_session(self, session: Session, until: float) -> Opened | SessionOver:
        return await self.open(session, VerbCall(until))

    async def close_session(self, session: str, until: float) -> Done:
        return await self.close(session, VerbCall(until))

    # Claims

    async def enter(self, claim: Claim, until: float) -> Any:
        verb = VerbCall(until)
        try:
            return await self._recipe(claim).enter(claim, verb)
        except LeaseGone:
            return SessionOver()
        except EngineFailure as error:
            entry = self.ledger.get(claim.id)
            if entry is None or entry.created:
                raise
            if self._not_sent_yet(entry, verb):
                return self.unsent(entry)
            if verb.settled and not entry.doubtful:
                # Its answer came, so it is applied by now or never will be. A full etcd still takes removals.
                await self.withdraw(claim, False, verb)
                raise verb.refused(error) from error
            if error.outcome == "unknown":
                entry.doubtful = True
            elif not entry.doubtful:
                self.ledger.forget(claim.id)
            raise

    async def look(self, claim: Claim, until: float) -> Any:
        verb = VerbCall(until)
        try:
            return await self._recipe(claim).look(claim, verb)
        except LeaseGone:
            return SessionOver()
        except EngineFailure as error:
            entry = self.ledger.get(claim.id)
            if entry is None or entry.created:
                raise
            if self._not_sent_yet(entry, verb):
                return self.unsent(entry)
            if error.outcome == "unknown":
                entry.doubtful = True  # its turn to be sent had come
            raise

    async def confirm(self, claim: Claim, until: float) -> Any:
        entry = self.ledger.get(claim.id)
        if entry is None or not entry.revision:
            return Gone(WITHDRAWN)
        return await self.still_granted(entry, VerbCall(until), asks=True)

    async def own_claims(self, session: str, until: float) -> list[tuple[Claim, int | None]]:
        """Only those that this client does not know. What it knows is looked at, claim by claim."""
        rows = await self.strays(session, VerbCall(until))
        return [(row.record.claim, self.ledger.base + row.modified if row.held else None) for row in rows]

    @staticmethod
    def _not_sent_yet(entry: Entry, verb: VerbCall) -> bool:
        """Whether an enter still waits behind others of this client: that is no failure, but a place."""
        if not verb.crowded or verb.changed or entry.doubtful or not entry.claim.waits:
            return False
        entry.sent = False
        return True

    async def release(self, claim: Claim, until: float) -> Done | Gone:
        entry = self.ledger.get(claim.id)
        if entry is None or not entry.revision:
            return Gone(WITHDRAWN)
        line, note = self.keys.line(claim.kind, claim.name), self.keys.note(claim.id)
        clear = [self.tombstone(claim)] if entry.doubtful else []
        if entry.offered:
            clear.append(steps.delete(self.keys.ticket(claim.id)))
        verb = VerbCall(until)
        try:
            answer = await self.call(
                steps.step(
                    [steps.unchanged(entry.key, entry.revision)],
                    [steps.delete(entry.key), steps.delete(self._mark(claim)), *clear],
                    [steps.get(entry.key), steps.get(note), steps.get(self.keys.session(claim.session)), *clear],
                    together=line,
                    alike=ENDS,
                    urgent=True,
                ),
                verb,
            )
        except LeaseGone:
            return Gone(MISSING)  # with the session, to which the tombstone belongs
        self.ledger.forget(claim.id)
        if answer.message.succeeded:
            if entry.slot is not None:
                self.ledger.freed(line, entry.slot)
            return Done()
        there, notes, session = (steps.kvs(response) for response in answer.message.responses[:3])
        if notes:
            return Gone(notes[0].value.decode())
        # An earlier try of the same call has removed it: a break or an adoption would have left a note, and the end of
        # the session would have removed its record. A permit's key may be another claim's by now.
        ours = any(read_row(self.keys, kv).record.claim.id == claim.id for kv in there)
        return Done() if answer.repeated and session and not ours else Gone(MISSING)

    def _mark(self, claim: Claim) -> bytes:
        return self.keys.told(claim.kind, claim.name) + claim.id.encode()

    async def leave(self, claim: Claim, unanswered: bool, until: float) -> Done:
        await self.withdraw(claim, unanswered, VerbCall(until))
        return Done()

    async def withdraw(self, claim: Claim, unanswered: bool, verb: VerbCall) -> None:
        entry = self.ledger.get(claim.id)
        if entry is not None and not (entry.sent or entry.adopting):
            self.ledger.forget(claim.id)
            return
        lease = lease_of(claim.session)
        clear = [steps.delete(self._mark(claim)), steps.delete(self.keys.note(claim.id))]
        if unanswered or (entry is not None and entry.doubtful):
            clear.append(self.tombstone(claim))
        if entry is not None and entry.offered:
            clear.append(steps.delete(self.keys.ticket(claim.id)))
        # Without an entry its key is gone, and may be another's.
        ends = [steps.delete(entry.key), *clear] if entry is not None else clear
        mine = [_still(entry, lease)] if entry is not None else []
        stray = self.ledger.strays.pop(claim.id, None)
        if entry is None and stray is not None:
            ends, mine = [steps.delete(stray.key), *clear], [steps.unchanged(stray.key, stray.modified)]
        try:
            await self.call(
                steps.step(mine, ends, clear, together=self.keys.line(claim.kind, claim.name), alike=ENDS, urgent=True),
                verb,
            )
            if claim.limit and (entry is None or not entry.revision):
                # A permit that was taken without an answer is known by what is written in it.
                row = await self.permits.lost_track(claim, verb)
                if row is not None:
                    await self.call(steps.step([steps.unchanged(row.key, row.modified)], [steps.delete(row.key)]), verb)
        except LeaseGone:
            pass  # the session is over, and the claim with it
        if entry is not None:
            self.stop_waiting(entry)
            self.ledger.forget(claim.id, retire=not (entry.created or entry.revision))

    # Handing over

    async def hand_over(self, claim: Claim, ticket: str, until: float) -> Done | Gone:
        entry = self.ledger.get(claim.id)
        if entry is None or not entry.revision:
            return Gone(MISSING)
        entry.line = ""  # from now on its key may be another session's: it is not used again
        entry.offered = True
        verb = VerbCall(until)
        kept = {
            "secret": ticket, "key": entry.key.decode(), "revision": entry.revision,
            "clock": await clock_of(self, entry, verb), "hold_left": entry.hold_left,
        }  # fmt: skip
        offer = steps.put(self.keys.ticket(claim.id), json.dumps(kept).encode(), lease_of(claim.session))
        try:
            answer = await self.call(
                steps.step(
                    [steps.unchanged(entry.key, entry.revision), steps.absent(self.keys.note(claim.id))],
                    [offer],
                    [steps.get(self.keys.note(claim.id))],
                ),
                verb,
            )
        except LeaseGone:
            return Gone(MISSING)
        if answer.message.succeeded:
            return Done()
        notes = steps.kvs(answer.message.responses[0])
        return Gone(notes[0].value.decode() if notes else MISSING)

    async def adopt(self, claim: Claim, source: str, ticket: str, until: float) -> Any:
        """The same key is written again under the receiver's lease: it keeps its place, and nobody comes between."""
        if claim.session != self.ledger.session.id:
            return SessionOver()
        verb, offer = VerbCall(until), self.keys.ticket(source)
        found = (await self.call(steps.look(offer), verb)).message.kvs
        kept = json.loads(found[0].value) if found else {}
        if kept.get("secret") != ticket:
            return Gone(VOID)
        key = kept["key"].encode()
        # The hold ends when the sender's would have.
        hold_clock, asked_at = HoldClock(*kept["clock"]) if kept["clock"] else None, clock.now()
        if hold_clock is not None:
            left = min(kept["hold_left"], await hold_clock.left_now(self, verb))
            if not left:
                return Gone(HELD_TOO_LONG)
            claim = replace(claim, max_hold=left)
        record = new_record(claim, self.ledger.session, "granted")
        entry = Entry(record, key, created=1, adopting=record.pack(), granted_at=asked_at, hold_clock=hold_clock)
        entry = self.ledger.adopt(entry)
        if claim.limit:
            entry.slot = int(key.rpartition(b"/")[2])
        step = steps.step(
            [
                steps.unchanged(key, kept["revision"]),
                steps.unchanged(offer, found[0].mod_revision),
                steps.absent(self.keys.tombstone(claim.id)),
                # An operator's note: the sender was told to let go, so the grant must not go on under another name.
                steps.absent(self.keys.note(source)),
            ],
            [
                steps.put(key, entry.adopting, lease_of(claim.session)),
                steps.delete(offer),
                steps.put(self.keys.note(source), HANDED_OVER.encode(), lease_of(session_of(source))),
            ],
            [steps.get(key)],
        )
        try:
            answer = await self.call(step, verb)
        except LeaseGone:
            # The sender's, or the receiver's own, which its keeper will notice.
            self.ledger.forget(claim.id)
            return Gone(VOID)
        if answer.message.succeeded:
            return self.line.granted(entry, answer.revision)
        rows = [read_row(self.keys, kv) for kv in steps.kvs(answer.message.responses[0])]
        if rows and rows[0].record.claim.id == claim.id:
            return self.line.granted(entry, rows[0].modified)
        self.ledger.forget(claim.id)
        return Gone(VOID)

    # For people

    async def break_lock(self, kind: str, name: str, force: bool, until: float) -> BreakUnderWay:
        verb = VerbCall(until)
        held = [row for row in await self._line_rows(kind, name, verb) if row.held]
        told = [await self._break(row, force, verb) for row in held]
        return BreakUnderWay(tuple(claim_id for claim_id in told if claim_id is not None))

    async def _break(self, row: Row, force: bool, verb: VerbCall) -> str | None:
        """Leave a note under the holder's session, which its client reads; the claim that held, None if there is none.

        An adoption writes the same key anew: the hold goes on, and it is the adopter that has to let go.
        """
        while True:
            try:
                answer = await self.call(self._breaking(row, force), verb)
            except LeaseGone:
                return None
            if answer.message.succeeded:
                if not force:
                    self.ledger.count_down(row, row.record.ttl, BROKEN)
                return row.record.claim.id
            found = [read_row(self.keys, kv) for kv in steps.kvs(answer.message.responses[0])]
            if not any(other.created == row.created and other.held for other in found):
                return row.record.claim.id if answer.repeated else None
            (row,) = found

    def _breaking(self, row: Row, force: bool) -> Request:
        """Break a claim, if it is still what was read; otherwise read its key."""
        claim = row.record.claim
        lease = lease_of(session_of(claim.id))
        note = steps.put(self.keys.note(claim.id), BROKEN.encode(), lease)
        if force:
            then = [steps.delete(row.key), steps.delete(self._mark(claim)), note]
        else:
            kept = _KeyValue(
                key=row.key, value=row.record.pack(), create_revision=row.created, mod_revision=row.modified
            )
            then = [note, steps.put(self._mark(claim), kept.SerializeToString(), lease)]
        return steps.step([steps.unchanged(row.key, row.modified)], then, [steps.get(row.key)])

    async def _line_rows(self, kind: str, name: str, verb: VerbCall) -> list[Row]:
        return _in_order(await self.rows(self.keys.line(kind, name).encode(), verb))

    async def _know_base(self, verb: VerbCall) -> None:
        """Tokens are shown to people before there is a session, too."""
        if not self.ledger.base:
            await cells.cell_get(self, f"{self.keys.namespace}.", "", verb)

    def _info(self, kind: str, name: str, rows: list[Row]) -> LockInfo:
        base = self.ledger.base
        limit = next((row.record.claim.limit for row in rows), 0)
        return LockInfo(
            kind,
            name,
            tuple(row.party(base) for row in rows if row.held),
            tuple(row.party(base) for row in rows if not row.held),
            limit,
        )

    async def inspect(self, kind: str, name: str, until: float) -> LockInfo:
        verb = VerbCall(until)
        await self._know_base(verb)
        return self._info(kind, name, await self._line_rows(kind, name, verb))

    async def list(self, prefix: str, kind: str, until: float) -> tuple[LockInfo, ...]:
        verb = VerbCall(until)
        await self._know_base(verb)
        start = self.keys.lines
        if not kind.endswith("."):
            start += f"{self.keys.short(kind)}/{prefix.rstrip('/')}".encode()
        lines: dict[tuple[str, str], list[Row]] = {}
        for row in await self.rows(start, verb):
            claim = row.record.claim
            if matches(prefix, claim.name):
                lines.setdefault((claim.kind, claim.name), []).append(row)
        return tuple(self._info(*line, _in_order(rows)) for line, rows in sorted(lines.items()))

    # Cells

    async def cell_get(self, kind: str, name: str, until: float) -> CellValue:
        return await cells.cell_get(self, kind, name, VerbCall(until))

    async def cell_set(
        self, kind: str, name: str, value: bytes | None, version: int | None, keep: float | None, until: float
    ) -> CellValue | Mismatch:
        return await cells.cell_set(self, kind, name, value, version, keep, VerbCall(until))

    # Watches

    async def watch(self, session: str, id_: str, kind: str, prefix: str, until: float) -> Done | SessionOver:
        return await self.subscriptions.watch(self, session, id_, kind, prefix, VerbCall(until))

    async def cell_watch(self, session: str, id_: str, kind: str, name: str, until: float) -> Done | SessionOver:
        return await self.subscriptions.cell_watch(self, session, id_, kind, name, VerbCall(until))

    async def fetch(self, session: str, id_: str, after: int, until: float) -> Letters | SessionOver:
        return self.subscriptions.fetch(session, id_, after)

    async def unwatch(self, session: str, id_: str, until: float) -> Done:
        return self.subscriptions.unwatch(id_)

    async def raise_tokens(self, above: int, until: float) -> Done:
        return await raise_base(self, above, VerbCall(until))


def _still(entry: Entry, lease: int) -> Any:
    """The key is still this claim's."""
    # What was granted here may have been adopted since. What was not cannot have been.
    if entry.revision:
        return steps.unchanged(entry.key, entry.revision)
    if entry.adopting:
        # The lease tells nothing: the sender may be of the same session.
        return steps.holds(entry.key, entry.adopting)
    # When it was created is not known of what was not answered.
    if entry.created and entry.line:
        return steps.created_at(entry.key, entry.created)
    return steps.under(entry.key, lease)


def _in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.order, row.key))
