"""The table that a store has kept: its state, with the log's last word, as dictionaries again."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence

from holdfast.core.table import Dictionary
from holdfast.core.table.changes import PutCounter, PutSession
from holdfast.core.table.rebuilding import fill
from holdfast.core.table.rows import Row
from holdfast.model import Claim, Mode
from holdfast.server.codec import Record, Untrusted, parse, put_change
from holdfast.server.window import Window, key_of

MODES: dict[str, Mode] = {"exclusive": "exclusive", "shared": "shared"}


class Totals:
    """What the records of the state add up to: one that is lost, changed or there twice is noticed."""

    def __init__(self, count: int = 0, sum: int = 0) -> None:
        self.count, self.sum = count, sum

    def add(self, checksum: int) -> None:
        self.count += 1
        self.sum = (self.sum + checksum) % 2**64

    def take(self, checksum: int) -> None:
        self.count -= 1
        self.sum = (self.sum - checksum) % 2**64

    def pair(self) -> tuple[int, int]:
        return self.count, self.sum


def read_state(
    portions: Iterable[Sequence[tuple[str, int, str, str, int, bytes, int]]], expected: Totals
) -> Iterable[Sequence[Record]]:
    """The records of the state, checked one by one and, at the end, all together."""
    found = Totals()
    for portion in portions:
        bodies = [row[5] for row in portion]
        sums = [row[6] for row in portion]
        if list(map(zlib.crc32, bodies)) != sums:
            raise Untrusted("a record of its state does not match its checksum")
        found.count += len(sums)
        found.sum = (found.sum + sum(sums)) % 2**64
        records = parse(b"[" + b",".join(bodies) + b"]")
        if [*map(key_of, records)] != [row[:5] for row in portion]:
            # It would be read, and never be found when it is to go.
            raise Untrusted("a record of its state lies under another's key")
        yield records
    if found.pair() != expected.pair():
        raise Untrusted(f"its state has {found.count} records, not the {expected.count} that it should have")


def rebuild(first_number: int, portions: Iterable[Sequence[Record]], window: Window) -> Dictionary:
    """The table of these records where the window does not say otherwise."""
    table = Dictionary(first_number)
    rows: list[Row] = []
    others: list[Record] = []
    overruled, make = window.overrules(), row_maker()
    touched = overruled.claims
    for portion in portions:
        for record in portion:
            if record[0] == "R":
                if record[1][0] not in touched:
                    rows.append(make(record))
            elif key_of(record) not in overruled:
                others.append(record)
    for _, record in window.records():
        if record[0] == "R":
            rows.append(make(record))
        else:
            others.append(record)
    # Claims count for the users of their sessions. Letters have to find their watch, in the order of their numbers.
    others.sort(key=lambda record: (record[0] != "S", record[0] == "L", record[3] if record[0] == "L" else 0))
    for record in others:
        table.put(put_change(record))
    fill(table, rows)
    return table


def row_maker() -> Callable[[Record], Row]:
    """Makes rows that share what many of them have: sessions, owners, kinds and threads."""
    known: dict[str, str] = {}
    share = known.setdefault

    def make(record: Record) -> Row:
        _, fields, order, since, token, *rest = record
        id_, session, owner, kind, name, mode, subtree, limit, waits, reentrant, max_hold, note, thread, *more = fields
        claim = Claim(
            id_, share(session, session), share(owner, owner), share(kind, kind), name, MODES[mode], subtree,
            limit, waits, reentrant, max_hold, share(note, note), share(thread, thread), *more,
        )  # fmt: skip
        return Row(claim, order, since, order if token == order else token, *rest)

    return make


def grace(table: Dictionary, now: float, last: float) -> list[PutSession]:
    """Give every session that was alive at the last batch a full ttl from now; what is to be kept of that.

    Its client may have been renewing it, unanswered, for as long as there was no server. One that had run out
    by then stays dead: somebody else may have been granted what it held.
    """
    graced = [
        PutSession(session._replace(expires_at=now + session.ttl))
        for session in table.sessions.values()
        if session.expires_at > last
    ]
    for change in graced:
        table.put(change)
    return graced


def raise_counters(table: Dictionary, above: int) -> list[PutCounter]:
    """Make every later token larger than `above`."""
    table.first_number = max(table.first_number, above)
    raised = [PutCounter(bucket, above) for bucket, last in table.counters.items() if last < above]
    for change in raised:
        table.put(change)
    return raised
