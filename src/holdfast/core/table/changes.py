"""What a step changes. Applied in order they give the next table; replayed from the start, an equal one.

Rows are put and dropped by every grant and release: dataclasses, which are made faster than named tuples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from holdfast.core.table.rows import Cell, Letter, Row, Session, Tombstone, Watch


class PutSession(NamedTuple):
    """The session is as given."""

    session: Session


class DropSession(NamedTuple):
    """The session is forgotten, with its tombstones, watches and letters. Its claims are gone already."""

    session: str


@dataclass(slots=True)
class PutRow:
    """The claim is as given."""

    row: Row


@dataclass(slots=True)
class DropRow:
    """The claim is forgotten."""

    row: Row


class PutCounter(NamedTuple):
    """The last number that the bucket gave out."""

    bucket: int
    last: int


class PutTombstone(NamedTuple):
    """The claim id is dead."""

    tombstone: Tombstone


class DropTombstone(NamedTuple):
    """Whoever it was for has been told."""

    session: str
    claim_id: str


class PutCell(NamedTuple):
    """The cell is as given."""

    cell: Cell


class DropCell(NamedTuple):
    """The cell is deleted."""

    kind: str
    name: str


class PutWatch(NamedTuple):
    """The watch collects letters."""

    watch: Watch


class DropWatch(NamedTuple):
    """The watch and its letters are forgotten."""

    session: str
    id: str


class PutLetter(NamedTuple):
    """An event waits to be fetched."""

    letter: Letter


class DropLetters(NamedTuple):
    """Letters up to this number were fetched."""

    session: str
    watch: str
    upto: int


Change = (
    PutSession | DropSession | PutRow | DropRow | PutCounter | PutTombstone | DropTombstone
    | PutCell | DropCell | PutWatch | DropWatch | PutLetter | DropLetters
)  # fmt: skip
