"""What some batches came to: for each key the last word, so that a lock taken and given back is nothing.

A store keeps a log of batches, and beside it the *state*: one record for each key, as of some batch. Folding a
window of the log into the state costs as much as the window left behind, however large the table is. It may take
several commits: whoever reads the state afterwards lets the log since then have the last word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast.server.codec import Record

Key = tuple[str, int, str, str, int]
"""A kind of record, a claim's arrival, and what is unique in it.

By their arrival, those that come together lie together: a commit touches few pages.
"""

INFINITY = float("inf")


class Span(NamedTuple):
    """All records of a kind that share the first field, or the first two, up to a number."""

    kind: str
    one: str
    two: str | None = None
    upto: float = INFINITY

    def covers(self, key: Key) -> bool:
        kind, _, one, two, number = key
        return kind == self.kind and one == self.one and self.two in (None, two) and number <= self.upto


def key_of(record: Record) -> Key:
    """The key of a record of what is."""
    kind = record[0]
    if kind == "R":
        return ("R", record[2], record[1][0], "", 0)
    if kind in ("C", "W"):
        return (kind, 0, record[1], record[2], 0)
    if kind == "T":
        return ("T", 0, record[2], record[1], 0)
    if kind == "L":
        return ("L", 0, record[1], record[2], record[3])
    return (kind, 0, str(record[1]), "", 0)


class Window:
    """The last word of the batches that were absorbed."""

    def __init__(self, watermark: float = INFINITY) -> None:
        self.watermark = watermark
        """A row that arrived after this cannot be in the state yet."""
        self.puts: dict[str, dict[Key, Record]] = {kind: {} for kind in "SNRTCWL"}
        self.drops: dict[Key, None] = {}
        """Keys that may be in the state, with another record or with one that is no more."""
        self.spans: list[Span] = []
        """The same, for many keys at once."""

    def absorb(self, records: Iterable[Record]) -> None:
        """Let a batch have the last word."""
        rows, drops = self.puts["R"], self.drops
        for record in records:
            kind = record[0]
            if kind == "R":
                key: Key = ("R", record[2], record[1][0], "", 0)
                rows[key] = record
                if record[2] <= self.watermark:
                    drops[key] = None
            elif kind == "r":
                key = ("R", record[2], record[1], "", 0)
                rows.pop(key, None)
                if record[2] <= self.watermark:
                    drops[key] = None
            elif kind in self.puts:
                key = key_of(record)
                self.puts[kind][key] = record
                drops[key] = None
            else:
                self._drop(kind, record)

    def _drop(self, kind: str, record: Record) -> None:
        if kind == "s":
            self._end(Span("S", record[1]), Span("T", record[1]), Span("W", record[1]), Span("L", record[1]))
        elif kind == "w":
            self._end(Span("W", record[1], record[2]), Span("L", record[1], record[2]))
        elif kind == "l":
            self._end(Span("L", record[1], record[2], record[3]))
        else:
            key: Key = (kind.upper(), 0, record[1], record[2], 0)
            self.puts[kind.upper()].pop(key, None)
            self.drops[key] = None

    def _end(self, *spans: Span) -> None:
        for span in spans:
            found = self.puts[span.kind]
            if span.kind == "S":
                found.pop(("S", 0, span.one, "", 0), None)
            else:
                for key in [key for key in found if span.covers(key)]:
                    del found[key]
            self.spans.append(span)

    def overrules(self) -> Overruled:
        """Whether a record of the state is no longer true, for all keys at once."""
        return Overruled(self)

    def records(self) -> Iterator[tuple[Key, Record]]:
        """What is true at its end, of what it touched."""
        for found in self.puts.values():
            yield from found.items()

    def __len__(self) -> int:
        return sum(map(len, self.puts.values())) + len(self.drops) + len(self.spans)


class Overruled:
    """Which records of the state a window has replaced or ended."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.spans: dict[tuple[str, str], list[Span]] = {}
        for span in window.spans:
            self.spans.setdefault((span.kind, span.one), []).append(span)

    def __contains__(self, key: Key) -> bool:
        if key in self.window.drops or key in self.window.puts[key[0]]:
            return True
        return any(span.covers(key) for span in self.spans.get((key[0], key[2]), ()))
