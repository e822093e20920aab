"""Names in use, in order: what a listing shows is found without a look at the others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

Name = tuple[str, str]
"""A kind and a name."""

CHUNK = 512
YOUNG = 1_024
"""How many names may come or go before they are sorted in: most locks are given back before that."""
MOST_KINDS = 1_000
"""Kinds that a listing looks at in one go."""


class Directory:
    """A sorted set of names that costs little to change. What has come and gone again is never sorted in."""

    def __init__(self) -> None:
        self._chunks: list[list[Name]] = []
        self._firsts: list[Name] = []
        """What each chunk began with: nothing in it is below that."""
        self._new: dict[Name, None] = {}
        self._gone: dict[Name, None] = {}
        self.patience: float = YOUNG
        """How many may come, or go, before they are sorted."""

    def __len__(self) -> int:
        return sum(map(len, self._chunks)) + len(self._new) - len(self._gone)

    def add(self, key: Name) -> None:
        """A name that was not in use is."""
        if key in self._gone:
            del self._gone[key]
        else:
            self._new[key] = None
            if len(self._new) > self.patience:
                self.settle()

    def drop(self, key: Name) -> None:
        """A name is in use no more."""
        if key in self._new:
            del self._new[key]
        else:
            self._gone[key] = None
            if len(self._gone) > self.patience:
                self.settle()

    def settle(self) -> None:
        """Sort in what has come, and out what has gone."""
        if not self._chunks:
            keys = sorted(self._new)
            self._chunks = [keys[start : start + CHUNK] for start in range(0, len(keys), CHUNK)]
            self._firsts = [chunk[0] for chunk in self._chunks]
            self._new = {}
            return
        for key in self._gone:
            at = bisect_right(self._firsts, key) - 1
            chunk = self._chunks[at]
            del chunk[bisect_left(chunk, key)]
            if not chunk and len(self._chunks) > 1:
                del self._chunks[at], self._firsts[at]
        for key in self._new:
            self._insert(key)
        self._new, self._gone = {}, {}

    def _insert(self, key: Name) -> None:
        at = max(0, bisect_right(self._firsts, key) - 1)
        chunk = self._chunks[at]
        insort(chunk, key)
        self._firsts[at] = min(self._firsts[at], key)
        if len(chunk) > 2 * CHUNK:
            self._chunks.insert(at + 1, chunk[CHUNK:])
            self._firsts.insert(at + 1, chunk[CHUNK])
            del chunk[CHUNK:]

    def since(self, key: Name) -> Iterator[Name]:
        """Every name from this one on. Nothing may change meanwhile."""
        if self._new or self._gone:
            self.settle()
        at = max(0, bisect_right(self._firsts, key) - 1)
        if at < len(self._chunks):
            chunk = self._chunks[at]
            yield from chunk[bisect_left(chunk, key) :]
            for chunk in self._chunks[at + 1 :]:
                yield from chunk

    # What a listing shows

    def shown(self, kind: str, prefix: str, starts: tuple[str, ...], after: Name = ("", "")) -> Iterator[Name]:
        """Names after one that a prefix shows and that begin with one of `starts`, of a kind or (`x.`) a namespace.

        After very many kinds it pauses: the last one is an empty name of the kind to go on from.
        """
        ranges = narrowed(prefix, starts)
        if not kind.endswith("."):
            yield from self._of_kind(kind, ranges, after)
            return
        here = max(kind, after[0])
        for _ in range(MOST_KINDS):
            found = next(self.since((here, "")), None)
            if found is None or not found[0].startswith(kind):
                return
            yield from self._of_kind(found[0], ranges, after)
            here = found[0] + "\0"
        yield here, ""

    def _of_kind(self, kind: str, ranges: list[tuple[str, bool]], after: Name) -> Iterator[Name]:
        for start, exact in ranges:
            for key in self.since(max((kind, start), after)):
                if key[0] != kind or not (key[1] == start if exact else key[1].startswith(start)):
                    break
                if key > after:
                    yield key
                if exact:
                    break


def narrowed(prefix: str, starts: tuple[str, ...]) -> list[tuple[str, bool]]:
    """What to look through, in order: names that begin so, or (True) are just that."""
    wanted = [(prefix, False)] if not prefix or prefix.endswith("/") else [(prefix, True), (prefix + "/", False)]
    found: set[tuple[str, bool]] = set()
    for text, exact in wanted:
        for start in starts:
            if text.startswith(start):
                found.add((text, exact))
            elif not exact and start.startswith(text):
                found.add((start, False))
    whole = [text for text, exact in found if not exact]
    # One that begins with another one is in it.
    inside = {one for one in found if any(one[0] != other and one[0].startswith(other) for other in whole)}
    return sorted(found - inside)
