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
from holdfast.engines.etcd.keys import Row, end_of, lease_of, new_record, read_row
from holdfast.engines.etcd.ledger import Entry
from holdfast.engines.etcd.wire import Answer, Request
from holdfast.model import Claim, Gone, Granted, Place, Refused

if TYPE_CHECKING:
    from holdfast.engines.etcd.outcome import VerbCall
    from holdfast.engines.etcd.session import Known

MISSING = "etcd no longer has it"
FEW = 8
"""So many claims of one client, of which none knows what is before it, are worth one look at the whole line."""


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
        entry = known.ledger.enter(new_record(claim, session, "queued"), self.own_keys(claim))
        if entry.created:
            return known.remembered(entry) or await self._ask(entry, verb)
        queue = known.ledger.queue(entry, known.keys.line(claim.kind, claim.name))
        if claim.waits and not queue.admit(claim.id):
            return known.unsent(entry)
        try:
            entry.sent = True
            last = queue.last()
            if last is not None and claim.waits and claim.mode == "exclusive":
                place = await self._follow(entry, last, verb)
                if place is not None:
                    return place
            return await self._enter(entry, verb)
        finally:
            known.ledger.entered(entry)

    async def _follow(self, entry: Entry, last: Entry, verb: VerbCall) -> Any:
        """Get in line behind an own claim; None if that one is gone. This costs the same for every length of line."""
        known, claim = self.known, entry.claim
        answer = await known.call(
            steps.step(
                [*self._here(entry), steps.created_at(last.key, last.created)],
                [steps.put(entry.key, entry.record.pack(), lease_of(claim.session))],
                [steps.get(entry.key), steps.get(known.keys.tombstone(claim.id))],
                together=known.keys.line(claim.kind, claim.name),
            ),
            verb,
        )
        entry.doubtful = entry.doubtful or answer.repeated
        if not answer.message.succeeded:
            found = any(steps.kvs(response) for response in answer.message.responses)
            return await self._entered_before(entry, answer.message, verb) if found else None
        entry.chained = True
        known.placed(entry, answer.revision)
        entry.position = (0 if last.revision else last.position) + 1
        cycle = await known.deadlock(entry, verb)
        if cycle is not None:
            return cycle
        return known.behind_own(entry) or await self._ask(entry, verb)

    def _here(self, entry: Entry) -> tuple[bytes, bytes]:
        """What holds for a claim that is new."""
        return steps.absent(self.known.keys.tombstone(entry.claim.id)), steps.absent(entry.key)

    async def _enter(self, entry: Entry, verb: VerbCall) -> Any:
        known, claim = self.known, entry.claim
        lease, rivals, here = lease_of(claim.session), self.rivals(claim), self._here(entry)
        queue = [steps.put(entry.key, entry.record.pack(), lease)] if claim.waits else []
        answer: Answer = await known.call(
            steps.step(
                [*here, steps.empty(rivals)],
                [steps.put(entry.key, entry.record.granted().pack(), lease)],
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
        entry.doubtful = entry.doubtful or answer.repeated
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
        self.known.placed(entry, own.create_revision)
        return await self._ask(entry, verb)

    async def _queued(self, entry: Entry, answer: Answer, found: Any, response: Any, verb: VerbCall) -> Any:
        claim, known = entry.claim, self.known
        # The latest first: its own, if it was written.
        ahead = [read_row(known.keys, kv) for kv in found if kv.key != entry.key]
        if not claim.waits:
            await known.refused(entry, answer, verb)
            return Refused(ahead[0].party(known.ledger.base) if ahead else None)
        known.placed(entry, answer.revision)
        others = response.response_range.count - (claim.mode == "exclusive")
        entry.position = max(1, others)
        cycle = await known.deadlock(entry, verb)
        if cycle is not None:
            return cycle
        if not ahead:
            return await self._ask(entry, verb)
        return self.behind(entry, ahead[0], answer.revision)

    def behind(self, entry: Entry, ahead: Row, revision: int) -> Place:
        """Wait for the end of the one before, from the moment that it was read."""
        known = self.known
        entry.before = ahead.key, ahead.created
        known.watch_end(entry, ahead.key, revision + 1)
        known.ledger.still_ahead(entry.before)
        known.count_down(ahead)
        return Place(entry.position, ahead.party(known.ledger.base))

    def granted(self, entry: Entry, revision: int) -> Granted:
        """It holds, by the write of this revision."""
        known = self.known
        entry.grant(revision)
        known.stop_waiting(entry)
        if not entry.created:
            known.placed(entry, revision)
        return Granted(known.ledger.base + revision, entry.slot, entry.hold_left)

    async def look(self, claim: Claim, verb: VerbCall) -> Any:
        """Take the lock if the claim is the head of the line now; otherwise its place."""
        known = self.known
        entry = known.ledger.get(claim.id)
        if entry is None:
            return SessionOver() if known.ledger.session.id != claim.session else Gone(WITHDRAWN)
        if entry.revision:
            return await known.still_granted(entry, verb)
        if not entry.created:
            return await self.enter(claim, verb)
        return known.behind_own(entry) or await self._ask(entry, verb)

    async def _ask(self, entry: Entry, verb: VerbCall) -> Any:
        """Ask etcd how a claim stands that is in line."""
        known = self.known
        if entry.revision:
            return Granted(known.ledger.base + entry.revision, entry.slot, entry.hold_left)
        if entry.chained and not entry.head and entry.before is None and await self._learn(entry, verb):
            return Place(entry.position)
        entry.called = False
        answer = await known.call(self._confirm(entry), verb)
        reply = steps.innermost(answer.message)
        if reply.succeeded:
            return self.granted(entry, answer.revision)
        own, ahead, session, told = (steps.kvs(response) for response in reply.responses)
        if not own or own[0].create_revision != entry.created:
            return await known.gone(entry, bool(session), verb)
        if own[0].mod_revision != entry.created:
            return self.granted(entry, own[0].mod_revision)  # by an earlier try, whose answer was lost
        known.told(told)
        entry.chained = False
        if not ahead:
            # Only what was compared before is left out of account: look once more.
            entry.head, entry.before = False, None
            return await self._ask(entry, verb)
        if entry.before != (ahead[0].key, ahead[0].create_revision):
            entry.head = False  # otherwise its end may have been heard of meanwhile
        if entry.ahead and entry.ahead != ahead[0].key:
            entry.position = max(1, entry.position - 1)
        return self.behind(entry, read_row(known.keys, ahead[0]), answer.revision)

    async def _learn(self, entry: Entry, verb: VerbCall) -> bool:
        """Read the whole line once, for all own claims in it; whether this one waits for a key that was found.

        To compare with the whole line costs as much, and is of use to one claim only.
        """
        known, queue = self.known, entry.queue
        if queue is None or queue.strangers() < FEW:
            return False
        start = self.rivals(entry.claim)
        answer = await known.call(steps.look(start, end_of(start), keys_only=True), verb)
        queue.learn((kv.create_revision, kv.key) for kv in answer.message.kvs)
        if entry.before is None:
            return False
        entry.chained = False
        known.watch_end(entry, entry.before[0], answer.revision + 1)
        return True

    def _confirm(self, entry: Entry) -> Request:
        """Write the own key again if nobody is before it; otherwise read who is.

        A range that is compared or read costs etcd as much as it has keys. It is not compared if nothing can be before
        this claim but one key: its direct predecessor held alone, and nothing comes in between later. And neither is
        done while the key is still there that was directly before this one.
        """
        claim, keys = entry.claim, self.known.keys
        rivals, line = self.rivals(claim), keys.line(claim.kind, claim.name)
        gone = [steps.ended(*entry.before)] if entry.before is not None else []
        # Not only still there but never written again: a try that comes late must not write what is granted by then.
        there, head = steps.unchanged(entry.key, entry.created), steps.none_before(rivals, entry.created)
        write = [steps.put(entry.key, entry.record.granted().pack(), lease_of(claim.session))]

        def read(ahead: bytes) -> list[bytes]:
            session, told = steps.get(keys.session(claim.session)), keys.told(claim.kind, claim.name)
            return [steps.get(entry.key), ahead, session, steps.get_all(told, 16)]

        first, otherwise = [head], read(steps.latest(rivals, 1, before=entry.created))
        if claim.mode == "shared":
            # A reader's own key is not among the writers', and a comparison with no keys at all never holds.
            first, otherwise = [steps.empty(rivals)], [steps.inner([there, head], write, otherwise)]
        if entry.head:
            first = gone
        if entry.before is None or entry.head:
            return steps.step([there, *first], write, otherwise, together=line, urgent=True)
        whole = steps.inner([there, *first], write, otherwise)
        return steps.step(gone, [whole], read(steps.get(entry.before[0])), together=line, urgent=True)
