"""Table changes as bytes, and back: what a store writes, whatever it writes it to.

A *record* is a change as plain data: a letter and its fields, JSON. Capital letters put, small ones drop, and
drops name only the key. A *batch* is one line of text: the version, a checksum that covers the batch before it
too, and `[number, time, records]`. So a batch that is torn, changed, missing or out of place is noticed.

A record may grow new fields at its end, with defaults: version N reads N-1 so.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import orjson

from holdfast.core.table import Dictionary
from holdfast.core.table import changes as ch
from holdfast.core.table.rows import Cell, Letter, Row, Session, Tombstone, Watch
from holdfast.model import Claim, LockEvent

VERSION = 1

Record = Sequence[Any]
"""`["R", [claim id, ...], order, ...]`, `["r", claim id, order]`, ..."""

_claim = attrgetter(*Claim.__slots__)
_event = attrgetter(*LockEvent.__slots__)
_STRICT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
"""What is no plain data is a mistake."""
_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False).encode


class Untrusted(Exception):
    """Bytes that are not what was written."""


class TooNew(Exception):
    """Written by a later version of Holdfast."""

    def __init__(self, version: int) -> None:
        self.version = version
        super().__init__(f"format version {version}, this Holdfast knows {VERSION}")


class Batch(NamedTuple):
    """What was kept together."""

    number: int
    at: float
    """On the clock of the table."""
    records: list[Record]
    sum: int
    """Covers every batch up to this one."""


_RECORDS: dict[type, Callable[[Any], Record]] = {
    ch.PutSession: lambda change: ("S", *change.session),
    ch.DropSession: lambda change: ("s", change.session),
    ch.PutTombstone: lambda change: ("T", *change.tombstone),
    ch.DropTombstone: lambda change: ("t", change.session, change.claim_id),
    # JSON has no bytes; Latin-1 gives each byte a letter of its own.
    ch.PutCell: lambda change: ("C", *change.cell._replace(value=change.cell.value.decode("latin-1"))),
    ch.DropCell: lambda change: ("c", change.kind, change.name),
    ch.PutWatch: lambda change: ("W", *change.watch),
    ch.DropWatch: lambda change: ("w", change.session, change.id),
    ch.PutLetter: lambda change: ("L", *change.letter[:3], _event(change.letter.event)),
    ch.DropLetters: lambda change: ("l", change.session, change.watch, change.upto),
}


def records(changes: Iterable[ch.Change]) -> list[Record]:
    """The changes as plain data, in order. Of the numbers that a counter went through, the last is enough."""
    found: list[Record] = []
    counters: dict[int, int] = {}
    for change in changes:
        # Nearly all are one of these three.
        if isinstance(change, ch.PutRow):
            row = change.row
            found.append(("R", _claim(row[0]), *row[1:]))
        elif isinstance(change, ch.DropRow):
            row = change.row
            found.append(("r", row[0].id, row[1]))
        elif isinstance(change, ch.PutCounter):
            counters[change[0]] = change[1]
        else:
            found.append(_RECORDS[type(change)](change))
    found += [("N", *counter) for counter in counters.items()]
    return found


def _cell(kind: str, name: str, value: str, *rest: Any) -> Cell:
    return Cell(kind, name, value.encode("latin-1"), *rest)


def _letter(session: str, watch: str, number: int, event: list[Any]) -> Letter:
    return Letter(session, watch, number, LockEvent(*event))


_CHANGES: dict[str, Callable[[Any], ch.Change]] = {
    "S": lambda fields: ch.PutSession(Session(*fields)),
    "R": lambda fields: ch.PutRow(Row(Claim(*fields[0]), *fields[1:])),
    "N": lambda fields: ch.PutCounter(*fields),
    "T": lambda fields: ch.PutTombstone(Tombstone(*fields)),
    "C": lambda fields: ch.PutCell(_cell(*fields)),
    "W": lambda fields: ch.PutWatch(Watch(*fields)),
    "L": lambda fields: ch.PutLetter(_letter(*fields)),
}


def put_change(record: Record) -> ch.Change:
    """The change that a record of what *is* (a capital letter) was made from."""
    return _CHANGES[record[0]](record[1:])


_DROPS: dict[str, Callable[[Any], ch.Change]] = {
    "s": lambda fields: ch.DropSession(*fields),
    "t": lambda fields: ch.DropTombstone(*fields),
    "c": lambda fields: ch.DropCell(*fields),
    "w": lambda fields: ch.DropWatch(*fields),
    "l": lambda fields: ch.DropLetters(*fields),
}


def change(record: Record, table: Dictionary) -> ch.Change:
    """The change that a record was made from, for the table that it comes next for."""
    kind = record[0]
    if kind == "r":
        return ch.DropRow(table.rows[record[1]])
    make = _CHANGES.get(kind) or _DROPS[kind]
    return make(record[1:])


def whole(table: Dictionary) -> Iterator[ch.Change]:
    """The changes that make an equal table out of an empty one; whoever reads them puts rows in their order."""
    for session in table.sessions.values():
        yield ch.PutSession(session)
    for bucket, last in table.counters.items():
        yield ch.PutCounter(bucket, last)
    for row in table.rows.values():
        yield ch.PutRow(row)
    for stones in table.tombstones.values():
        for stone in stones.values():
            yield ch.PutTombstone(stone)
    for cell in table.cells.values():
        yield ch.PutCell(cell)
    for watch in table.watches.values():
        yield ch.PutWatch(watch)
    for letters in table.letters.values():
        for letter in letters:
            yield ch.PutLetter(letter)


def dump(value: Any) -> bytes:
    """Plain data as bytes. Numbers in it are finite."""
    try:
        return orjson.dumps(value, None, _STRICT)
    except orjson.JSONEncodeError:
        # A note may hold half of a surrogate pair: any text that Python can hold comes back as it was.
        return _json(value).encode("utf-8", "surrogatepass")


def parse(body: bytes) -> Any:
    """What `dump` was given, tuples as lists."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass  # unless it is text as above
    try:
        return json.loads(body.decode("utf-8", "surrogatepass"))
    except ValueError as error:
        raise Untrusted(f"it cannot be read ({error})") from error


def seal(body: bytes, before: int = 0) -> tuple[bytes, int]:
    """The body with its version and a checksum that goes on from the one `before`; and that checksum."""
    found = zlib.crc32(body, before)
    return b"%d %08x " % (VERSION, found) + body, found


def unseal(blob: bytes, before: int = 0) -> tuple[bytes, int]:
    """The body of what `seal` made, and its checksum."""
    version, _, rest = bytes(blob).partition(b" ")
    if not version.isdigit() or version == b"0":
        raise Untrusted("it has no version")
    if int(version) > VERSION:
        raise TooNew(int(version))
    claimed, _, body = rest.partition(b" ")
    found = zlib.crc32(body, before)
    if claimed != b"%08x" % found:
        raise Untrusted("its checksum does not match")
    return body, found


def write_batch(number: int, at: float, found: list[Record], before: int) -> tuple[bytes, int]:
    """A batch as bytes, and the checksum for the next one."""
    return seal(dump([number, at, found]), before)


def read_batch(blob: bytes, number: int, before: int) -> Batch:
    """The batch that has to be this one, after one with that checksum."""
    body, found = unseal(blob, before)
    given, at, kept = parse(body)
    if given != number:
        raise Untrusted(f"it is batch {given}, not {number}")
    return Batch(given, at, kept, found)
