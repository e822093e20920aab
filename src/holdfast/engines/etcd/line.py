"""Standing in line for a lock: keys in the order of their creation.

Whoever finds the line empty (a reader: no writer in it) holds the lock by creating its key, in
the same step. Everybody else watches the one key before its own, and confirms its grant by
writing its own key again in a step that compares that it is the head of the line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.table.commands import SessionOver
from holdfast.core.table.rows import WITHDRAWN
from holdfast.engines.etcd import steps
from holdfast.engines.etcd.keys import Row, lease_of, new_record, read_row
from holdfast.engines.etcd.ledger import Entry
from holdfast.engines.etcd.wire import Answer, Request
from holdfast.model import Claim, Gone, Granted, Place, Refused

if TYPE_CHECKING:
    from holdfast.engines.etcd.outcome import VerbCall
    from holdfast.engines.etcd.session import Known

MISSING = "etcd no longer has it"


class Line:
    """Claims that hold alone or with other readers."""

    def __init__(self, known: Known) -> None:
        self.known = known

    def own_keys(self, claim: Claim) -> str:
        """What the keys of this session start with that stand in line as this claim does."""
        side = "x" if claim.mode == "exclusive" else "s"
        return f"{self.known.keys.line(claim.kind, claim.name)}{side}/{claim.session}/"

    def rivals(self, claim: Claim) -> bytes:
        """What the keys start with that this claim has to wait for, its own among them if it is a writer's."""
        line = self.known.keys.line(claim.kind, claim.name)
        return (line if claim.mode == "exclusive" else f"{line}x/").encode()

    async def enter(self, claim: Claim, verb: VerbCall) -> Any:
        known = self.known
        session = known.ledger.session
        if session.id != claim.session:
            return SessionOver()
        lease, rivals = lease_of(claim.session), self.rivals(claim)
        record = new_record(claim, session, "queued")
        entry = known.ledger.enter(record, self.own_keys(claim))
        if entry.created:
            return await self.look(claim, verb)
        here = (steps.absent(known.keys.tombstone(claim.id)), steps.absent(entry.key))
        queue = [steps.put(entry.key, record.pack(), lease)] if claim.waits else []
        answer: Answer = await known.call(
            steps.step(
                [*here, steps.empty(rivals)],
                [steps.put(entry.key, record.granted().pack(), lease)],
                [
                    steps.inner(
                        here,
                        [*queue, steps.latest(rivals, 2)],
                        [steps.get(entry.key), steps.get(known.keys.tombstone(claim.id))],
                    )
                ],
                together=known.keys.line(claim.kind, claim.name),
            ),
            verb,
        )
        entry.doubtful = answer.repeated
        if answer.message.succeeded:
            return self.granted(entry, answer.revision)
        second = answer.message.responses[0].response_txn
        if not second.succeeded:
            return await self._entered_before(entry, second, verb)
        return await self._queued(entry, answer, steps.kvs(second.responses[-1]), second.responses[-1], verb)

    async def _entered_before(self, entry: Entry, second: Any, verb: VerbCall) -> Any:
        """An earlier try of the same request has arrived, or was withdrawn."""
        own = self.known.own(entry, second)
        if own is None:
            return Gone(WITHDRAWN)
        entry.created = own.create_revision
        return await self.look(entry.claim, verb)

    async def _queued(self, entry: Entry, answer: Answer, found: Any, response: Any, verb: VerbCall) -> Any:
        claim, known = entry.claim, self.known
        # The latest first: its own, if it was written.
        ahead = [read_row(known.keys, kv) for kv in found if kv.key != entry.key]
        if not claim.waits:
            await known.refused(entry, answer, verb)
            return Refused(ahead[0].party(known.ledger.base) if ahead else None)
        entry.created = answer.revision
        others = response.response_range.count - (claim.mode == "exclusive")
        entry.position = max(1, others)
        cycle = await known.deadlock(entry, verb)
        if cycle is not None:
            return cycle
        if not ahead:
            return await self.look(claim, verb)
        return self.behind(entry, ahead[0], answer.revision)

    def behind(self, entry: Entry, ahead: Row, revision: int) -> Place:
        """Wait for the end of the one before, from the moment that it was read."""
        self.known.watch_end(entry, ahead.key, revision + 1)
        self.known.count_down(ahead)
        return Place(entry.position, ahead.party(self.known.ledger.base))

    def granted(self, entry: Entry, revision: int) -> Granted:
        """It holds, by the write of this revision."""
        known = self.known
        entry.grant(revision)
        known.stop_waiting(entry)
        entry.created = entry.created or revision
        return Granted(known.ledger.base + revision, entry.slot, entry.hold_left)

    async def look(self, claim: Claim, verb: VerbCall) -> Any:
        """Take the lock if the claim is the head of the line now; otherwise its place."""
        known = self.known
        entry = known.ledger.get(claim.id)
        if entry is None:
            return SessionOver() if known.ledger.session.id != claim.session else Gone(WITHDRAWN)
        if entry.revision:
            return Granted(known.ledger.base + entry.revision, entry.slot, entry.hold_left)
        answer = await known.call(self._confirm(entry), verb)
        reply = answer.message
        if not reply.succeeded and claim.mode == "shared":
            reply = reply.responses[0].response_txn
        if reply.succeeded:
            return self.granted(entry, answer.revision)
        own, ahead, session, told = (steps.kvs(response) for response in reply.responses)
        if not own or own[0].create_revision != entry.created:
            return await known.gone(entry, bool(session), verb)
        if own[0].mod_revision != entry.created:
            return self.granted(entry, own[0].mod_revision)  # by an earlier try, whose answer was lost
        known.told(told)
        if not ahead:
            # Only what was compared before is left out of account: look once more.
            return await self.look(claim, verb)
        if entry.ahead and entry.ahead != ahead[0].key:
            entry.position = max(1, entry.position - 1)
        return self.behind(entry, read_row(known.keys, ahead[0]), answer.revision)

    def _confirm(self, entry: Entry) -> Request:
        """Write the own key again if nobody is before it; otherwise read who is."""
        claim, keys = entry.claim, self.known.keys
        rivals, line = self.rivals(claim), keys.line(claim.kind, claim.name)
        # Not only still there but never written again: a try that comes late must not write what is granted by then.
        there, head = steps.unchanged(entry.key, entry.created), steps.none_before(rivals, entry.created)
        write = [steps.put(entry.key, entry.record.granted().pack(), lease_of(claim.session))]
        read = [
            steps.get(entry.key),
            steps.latest(rivals, 1, before=entry.created),
            steps.get(keys.session(claim.session)),
            steps.get_all(keys.told(claim.kind, claim.name), 16),
        ]
        if claim.mode == "exclusive":
            return steps.step([there, head], write, read, together=line)
        # A reader's own key is not among the writers', and a comparison with no keys at all never holds.
        later = steps.inner([there, head], write, read)
        return steps.step([there, steps.empty(rivals)], write, [later], together=line)
