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
        self._owned: dict[tuple[str, str], dict[Key, None]] = {}
        """Tombstones, watches and letters of `puts`, by kind and session: an end looks at nothing of others."""

    def absorb(self, records: Iterable[Record]) -> None:
        """Let a batch have the last word."""
        rows, drops, watermark = self.puts["R"], self.drops, self.watermark
        for record in records:
            kind = record[0]
            if kind == "R":
                order = record[2]
                key: Key = ("R", order, record[1][0], "", 0)
                rows[key] = record
                if order <= watermark:
                    drops[key] = None
            elif kind == "r":
                order = record[2]
                key = ("R", order, record[1], "", 0)
                rows.pop(key, None)
                if order <= watermark:
                    drops[key] = None
            elif kind in self.puts:
                key = key_of(record)
                self.puts[kind][key] = record
                drops[key] = None
                if kind in "TWL":
                    self._owned.setdefault((kind, key[2]), {})[key] = None
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
            if key in self.puts[key[0]]:
                self._forget(key[0], key[2], [key])
            self.drops[key] = None

    def _end(self, *spans: Span) -> None:
        for span in spans:
            if span.kind == "S":
                self.puts["S"].pop(("S", 0, span.one, "", 0), None)
            else:
                owned = self._owned.get((span.kind, span.one), {})
                self._forget(span.kind, span.one, [key for key in owned if span.covers(key)])
            self.spans.append(span)

    def _forget(self, kind: str, session: str, keys: Iterable[Key]) -> None:
        owned = self._owned.get((kind, session), {})
        for key in keys:
            del self.puts[kind][key]
            owned.pop(key, None)
        if not owned:
            self._owned.pop((kind, session), None)

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
        self.claims = {key[2] for key in (*window.drops, *window.puts["R"]) if key[0] == "R"}
        """By their ids alone: there may be millions to ask for."""
        self.spans: dict[tuple[str, str], list[Span]] = {}
        for span in window.spans:
            self.spans.setdefault((span.kind, span.one), []).append(span)

    def __contains__(self, key: Key) -> bool:
        if key in self.window.drops or key in self.window.puts[key[0]]:
            return True
        return any(span.covers(key) for span in self.spans.get((key[0], key[2]), ()))
