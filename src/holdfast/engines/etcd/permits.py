"""Permits: a line for those who wait, and a key for each permit in use.

A permit's key is created in the step that takes it; that step's revision is the token. Only the
head of the line watches the permits, everybody else the one before: a release wakes one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.core.table.commands import SessionOver, WrongLimit
from holdfast.core.table.rows import WITHDRAWN
from holdfast.engines.etcd import steps
from holdfast.engines.etcd.keys import Row, end_of, lease_of, new_record, read_row
from holdfast.engines.etcd.ledger import Entry
from holdfast.engines.etcd.wire import Answer
from holdfast.model import Claim, Gone, Granted, Place, Refused
from holdfast.runtime import clock

if TYPE_CHECKING:
    from holdfast.engines.etcd.outcome import VerbCall
    from holdfast.engines.etcd.session import Known


class Permits:
    """Claims for one of several permits."""

    def __init__(self, known: Known) -> None:
        self.known = known

    def _line(self, claim: Claim) -> str:
        return self.known.keys.line(claim.kind, claim.name)

    def own_keys(self, claim: Claim) -> str:
        """What the keys of this session start with that wait as this claim does."""
        return f"{self._line(claim)}q/{claim.limit:08}/{claim.session}/"

    def slot_key(self, claim: Claim, slot: int) -> bytes:
        return f"{self._line(claim)}p/{claim.limit:08}/{slot:08}".encode()

    def slots(self, claim: Claim) -> bytes:
        return f"{self._line(claim)}p/".encode()

    def queue(self, claim: Claim) -> bytes:
        return f"{self._line(claim)}q/".encode()

    @staticmethod
    def _same_limit(claim: Claim, start: bytes) -> list[Any]:
        """No key that starts so belongs to another limit. Every claim compares this, so all keys have one limit."""
        mine = b"%s%08d/" % (start, claim.limit)
        return [steps.empty(start, mine), steps.empty(end_of(mine), end_of(start))]

    async def enter(self, claim: Claim, verb: VerbCall) -> Any:
        known = self.known
        if known.ledger.session.id != claim.session:
            return SessionOver()
        record = new_record(claim, known.ledger.session, "queued")
        entry = known.ledger.enter(record, self.own_keys(claim))
        if entry.created:
            return known.remembered(entry) or await self.look(claim, verb)
        queue = known.ledger.queue(entry, self._line(claim))
        if claim.waits and not queue.admit(claim.id):
            return known.unsent(entry)
        try:
            entry.sent = True
            return await self._enter(entry, verb)
        finally:
            known.ledger.entered(entry)

    async def _enter(self, entry: Entry, verb: VerbCall) -> Any:
        known, claim = self.known, entry.claim
        entry.guess = known.ledger.free_slot(self._line(claim)) % claim.limit
        while True:
            # What is watched may put another guess in its place meanwhile.
            guess, place = entry.guess, entry.key
            answer: Answer = await known.call(self._enter_step(entry, guess), verb)
            if answer.repeated:
                entry.doubtful = True
                await known.bury(claim, verb)
            if answer.message.succeeded:
                if answer.repeated:
                    await self._leave_line(entry, place, verb)
                return self._took(entry, guess, answer.revision)
            second = answer.message.responses[0].response_txn
            if not second.succeeded:
                return await self._entered_before(entry, answer, second, verb)
            permits, ahead = (steps.kvs(response) for response in second.responses[-2:])
            used = [read_row(known.keys, kv) for kv in permits]
            queued = [read_row(known.keys, kv) for kv in ahead if kv.key != entry.key]
            mine = self._find(entry, used)
            if mine is not None:
                await self._leave_line(entry, place, verb)
                return mine
            if claim.waits:
                known.placed(entry, answer.revision)
                entry.position = max(1, second.responses[-1].response_range.count)
            free = self._free(claim, used)
            if claim.waits:
                return await self._queued(entry, used, queued, answer.revision, verb)
            if queued or free is None or clock.now() >= verb.until:
                await known.refused(entry, answer, verb)
                blocker = (used or queued)[0].party(known.ledger.base)
                return Refused(blocker)
            entry.guess = free

    async def _leave_line(self, entry: Entry, place: bytes, verb: VerbCall) -> None:
        """Another try of the request that has taken the permit may have put the claim into the line as well."""
        entry.line = ""  # the key is not used again: this may be sent twice, and compares nothing
        await self.known.call(steps.step([], [steps.delete(place)]), verb)

    def _enter_step(self, entry: Entry, guess: int) -> Any:
        claim, keys = entry.claim, self.known.keys
        here = [steps.absent(keys.tombstone(claim.id)), steps.absent(entry.key)]
        lease, slot = lease_of(claim.session), self.slot_key(claim, guess)
        queue = [steps.put(entry.key, entry.record.pack(), lease)] if claim.waits else []
        reads = [steps.get_all(self.slots(claim)), steps.latest(self.queue(claim), 2)]
        in_use = self._same_limit(claim, self.slots(claim))
        other = [
            steps.get(entry.key),
            steps.get(keys.tombstone(claim.id)),
            steps.get_all(self.slots(claim), 1),
            steps.get_all(self.queue(claim), 1),
        ]
        # A claim with another limit is refused in this step: in the queue it would refuse all that come after it.
        fits = [*here, *in_use, *self._same_limit(claim, self.queue(claim))]
        return steps.step(
            [*here, steps.empty(self.queue(claim)), steps.absent(slot), *in_use],
            [steps.put(slot, entry.record.granted().pack(), lease)],
            [steps.inner(fits, [*queue, *reads], other)],
            together=self._line(claim),
        )

    async def _entered_before(self, entry: Entry, answer: Answer, second: Any, verb: VerbCall) -> Any:
        """It was withdrawn, its earlier try has arrived, or its limit is another one than that of the semaphore."""
        rows = [read_row(self.known.keys, kv) for response in second.responses[2:] for kv in steps.kvs(response)]
        limits = [row.record.claim.limit for row in rows if row.record.claim.limit != entry.claim.limit]
        if limits and not any(steps.kvs(response) for response in second.responses[:2]):
            await self.known.refused(entry, answer, verb)
            return WrongLimit(limits[0])
        own = self.known.own(entry, second)
        if own is None:
            return Gone(WITHDRAWN)
        self.known.placed(entry, own.create_revision)
        return await self.look(entry.claim, verb)

    async def _queued(self, entry: Entry, used: list[Row], queued: list[Row], revision: int, verb: VerbCall) -> Any:
        cycle = await self.known.deadlock(entry, verb)
        if cycle is not None:
            return cycle
        free = self._free(entry.claim, used)
        if not queued and free is not None:
            entry.guess = free
            return await self.look(entry.claim, verb)
        return self._behind(entry, used, queued, revision)

    def _find(self, entry: Entry, used: list[Row]) -> Granted | None:
        """The permit that an earlier try of the same request has taken."""
        for row in used:
            if row.record.claim.id == entry.claim.id and row.slot is not None:
                return self._took(entry, row.slot, row.modified)
        return None

    @staticmethod
    def _free(claim: Claim, used: list[Row]) -> int | None:
        taken = {row.slot for row in used}
        return next((slot for slot in range(claim.limit) if slot not in taken), None)

    def _took(self, entry: Entry, slot: int, revision: int) -> Granted:
        known = self.known
        entry.key, entry.slot = self.slot_key(entry.claim, slot), slot
        entry.grant(revision)
        known.stop_waiting(entry)
        return Granted(known.ledger.base + revision, slot, entry.hold_left)

    def _behind(self, entry: Entry, used: list[Row], queued: list[Row], revision: int) -> Place:
        known = self.known
        if queued:
            entry.before = queued[0].key, queued[0].created
            known.watch_end(entry, queued[0].key, revision + 1)
            known.ledger.still_ahead(entry.before)
        else:
            slots, entry.before = self.slots(entry.claim), None
            known.watch_end(entry, slots, revision + 1, end_of(slots))
            for row in used:
                known.count_down(row)
        blocker = (used or queued)[0].party(known.ledger.base) if used or queued else None
        return Place(entry.position, blocker)

    async def look(self, claim: Claim, verb: VerbCall) -> Any:
        """Take a free permit if the claim is the head of the line now; otherwise its place."""
        known = self.known
        entry = known.ledger.get(claim.id)
        if entry is None:
            return SessionOver() if known.ledger.session.id != claim.session else Gone(WITHDRAWN)
        if entry.revision:
            return await known.still_granted(entry, verb)
        if not entry.created:
            return await self.enter(claim, verb)
        while not entry.revision:
            guess, entry.called = entry.guess, False
            answer = await known.call(self._take_step(entry, guess), verb)
            if answer.message.succeeded:
                return self._took(entry, guess, answer.revision)
            own, permits, ahead, session, told = (steps.kvs(response) for response in answer.message.responses)
            used = [read_row(known.keys, kv) for kv in permits]
            if not own or own[0].create_revision != entry.created:
                return self._find(entry, used) or await known.gone(entry, bool(session), verb)
            known.told(told)
            queued = [read_row(known.keys, kv) for kv in ahead]
            free = self._free(claim, used)
            if queued or free is None or clock.now() >= verb.until:
                if entry.ahead and (not queued or entry.ahead != queued[0].key):
                    entry.position = max(1, entry.position - 1) if queued else 1
                return self._behind(entry, used, queued, answer.revision)
            entry.guess = free
        return Granted(known.ledger.base + entry.revision, entry.slot, entry.hold_left)

    def _take_step(self, entry: Entry, guess: int) -> Any:
        claim, keys = entry.claim, self.known.keys
        slot = self.slot_key(claim, guess)
        record = replace(entry.record.granted(), arrived=entry.created)
        return steps.step(
            [
                steps.created_at(entry.key, entry.created),
                steps.none_before(self.queue(claim), entry.created),
                steps.absent(slot),
            ],
            [steps.delete(entry.key), steps.put(slot, record.pack(), lease_of(claim.session))],
            [
                steps.get(entry.key),
                steps.get_all(self.slots(claim)),
                steps.latest(self.queue(claim), 1, before=entry.created),
                steps.get(keys.session(claim.session)),
                steps.get_all(keys.told(claim.kind, claim.name), 16),
            ],
            together=self._line(claim),
            urgent=True,
        )

    async def lost_track(self, claim: Claim, verb: VerbCall) -> Row | None:
        """A permit that this claim has taken without hearing of it."""
        slots = self.slots(claim)
        answer = await self.known.call(steps.look(slots, end_of(slots)), verb)
        rows = [read_row(self.known.keys, kv) for kv in answer.message.kvs]
        return next((row for row in rows if row.record.claim.id == claim.id), None)
