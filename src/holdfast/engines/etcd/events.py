"""What a client is told of: changes of keys, read as what happened to locks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from holdfast.core.table.commands import LETTER, Done, Letters, Notice, SessionOver
from holdfast.core.table.rows import Watch
from holdfast.engines.etcd import steps
from holdfast.engines.etcd.keys import Keys, Row, end_of, read_row, session_of
from holdfast.engines.etcd.session import BROKEN, Known
from holdfast.engines.etcd.watcher import DELETED
from holdfast.model import EventType, LockEvent
from holdfast.runtime.calls import new_lock

if TYPE_CHECKING:
    from holdfast.engines.etcd.outcome import VerbCall
    from holdfast.engines.etcd.session import Shared

MOST_LETTERS = 10_000


class Story:
    """Tells from the keys that changed in one revision what happened to locks."""

    def __init__(self, keys: Keys, told: Sequence[Any]) -> None:
        self.keys = keys
        self.told = {_claim_of(kv.key) for kv in told}
        """Claims that were told to go."""

    def tell(self, events: Sequence[Any]) -> Iterator[tuple[EventType, Row]]:
        """What happened, with the claim that it happened to. Each revision is read as a whole."""
        for _, together in groupby(events, lambda event: event.kv.mod_revision):
            yield from self._revision(list(together))

    def _revision(self, events: list[Any]) -> Iterator[tuple[EventType, Row]]:
        ended: set[str] = set()
        notes: dict[str, str] = {}
        forgiven: set[str] = set()
        for event in events:
            key = event.kv.key
            if key.startswith(self.keys.sessions):
                session, _, note = key[len(self.keys.sessions) :].decode().partition("/")
                if event.type == DELETED and not note:
                    ended.add(session)
                elif event.type != DELETED and note:
                    notes[_claim_of(key)] = event.kv.value.decode()
            elif key.startswith(self.keys.broken):
                (forgiven if event.type == DELETED else self.told).add(_claim_of(key))
        for event in events:
            if event.kv.key.startswith(self.keys.lines):
                yield from self._claim(event, ended, notes)
        self.told -= forgiven

    def _claim(self, event: Any, ended: set[str], notes: dict[str, str]) -> Iterator[tuple[EventType, Row]]:
        before = read_row(self.keys, event.prev_kv) if event.prev_kv.key else None
        if event.type != DELETED:
            now = read_row(self.keys, event.kv)
            yield now.record.state, now
        elif before is not None and before.held:
            id_ = before.record.claim.id
            if session_of(id_) in ended:
                yield "expired", before
            elif id_ in notes:
                yield ("broken" if notes[id_] == BROKEN else "expired"), before
            else:
                yield ("broken" if id_ in self.told else "released"), before


def _claim_of(key: bytes) -> str:
    return key.decode().rpartition("/")[2]


class Subscription:
    """What was collected for one watch."""

    def __init__(self, session: str) -> None:
        self.session = session
        self._lock = new_lock()
        self._letters: deque[tuple[int, LockEvent]] = deque()
        self._last = 0
        self._overflowed = False

    def add(self, events: Sequence[LockEvent] | None) -> None:
        """Collect what happened; None if something was missed."""
        with self._lock:
            if events is None or len(self._letters) + len(events) > MOST_LETTERS:
                self._overflowed = True
                return
            for event in events:
                self._last += 1
                self._letters.append((self._last, event))

    def take(self, after: int) -> Letters:
        """The events after a number; those up to it are forgotten."""
        with self._lock:
            while self._letters and self._letters[0][0] <= after:
                self._letters.popleft()
            overflowed, self._overflowed = self._overflowed, False
            return Letters(tuple(event for _, event in self._letters), self._last, overflowed)


class Subscriptions:
    """The watches of one client."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self._found: dict[str, Subscription] = {}

    def _begin(self, session: str, id_: str) -> Subscription:
        subscription = self._found[id_] = Subscription(session)
        return subscription

    def _ring(self, subscription: Subscription, id_: str) -> None:
        self.shared.deliver(Notice(subscription.session, id_, LETTER))

    async def watch(
        self, known: Known, session: str, id_: str, kind: str, prefix: str, verb: VerbCall
    ) -> Done | SessionOver:
        if session != known.ledger.session.id:
            return SessionOver()
        keys, wish = known.keys, Watch(session, id_, kind, prefix)
        answer = await known.call(steps.look(keys.broken, end_of(keys.broken)), verb)
        story = Story(keys, answer.message.kvs)
        subscription = self._begin(session, id_)

        def hear(events: Sequence[Any] | None) -> None:
            if events is None:
                subscription.add(None)
            else:
                happened = [
                    self._event(type_, row)
                    for type_, row in story.tell(events)
                    if wish.hears(row.record.claim.kind, row.record.claim.name)
                ]
                if not happened:
                    return
                subscription.add(happened)
            self._ring(subscription, id_)

        root = keys.root.encode()
        known.watcher.watch(id_, root, answer.revision + 1, hear, end=end_of(root), with_former=True)
        return Done()

    def _event(self, type_: EventType, row: Row) -> LockEvent:
        claim = row.record.claim
        token = self.shared.ledger.base + row.modified if row.held else None
        return LockEvent(type_, claim.kind, claim.name, claim.owner, claim.id, time.time(), token, claim.mode)

    async def cell_watch(
        self, known: Known, session: str, id_: str, kind: str, name: str, verb: VerbCall
    ) -> Done | SessionOver:
        if session != known.ledger.session.id:
            return SessionOver()
        key = known.keys.cell(kind, name)
        answer = await known.call(steps.look(key), verb)
        subscription = self._begin(session, id_)

        def hear(events: Sequence[Any] | None) -> None:
            subscription.add([LockEvent("changed", f"cell:{kind}", name, "", "", time.time())])
            self._ring(subscription, id_)

        known.watcher.watch(id_, key, answer.revision + 1, hear)
        return Done()

    def fetch(self, session: str, id_: str, after: int) -> Letters | SessionOver:
        subscription = self._found.get(id_)
        if subscription is None or subscription.session != self.shared.ledger.session.id:
            return SessionOver()
        return subscription.take(after)

    def unwatch(self, id_: str) -> Done:
        self._found.pop(id_, None)
        self.shared.watcher.unwatch(id_)
        return Done()
