"""The claims on one name: those that hold, and those in line."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from holdfast.core.table.rows import Row

SHORT = 64
"""A queue no longer than this is counted by looking at it."""
CHUNK = 512


def arrival(row: Row) -> tuple[int, str]:
    """What rows are sorted by; a re-entered claim has the order of the hold that it continues."""
    return row.order, row.claim.id


class Ranks:
    """How many numbers are below another, in a long row of them that grows at its end and shrinks anywhere."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._chunks: list[list[int]] = []
        self._lowest: list[int] = []
        """Of each chunk, when it was begun: what it holds is not below it."""
        for number in numbers:
            self.add(number)

    def add(self, number: int) -> None:
        if not self._chunks or len(self._chunks[-1]) >= CHUNK:
            self._chunks.append([])
            self._lowest.append(number)
        self._chunks[-1].append(number)

    def remove(self, number: int) -> None:
        at = bisect_right(self._lowest, number) - 1
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, number)]
        if not chunk:
            del self._chunks[at], self._lowest[at]

    def below(self, number: int) -> int:
        at = bisect_right(self._lowest, number) - 1
        if at < 0:
            return 0
        return sum(map(len, self._chunks[:at])) + bisect_left(self._chunks[at], number)


class Queue:
    """Those in line, in the order of their arrival. Whoever comes, comes last."""

    __slots__ = ("_ranks", "_rows", "writers")

    def __init__(self) -> None:
        # Not a plain dictionary: looking for the first one of it passes all that have gone before.
        self._rows: OrderedDict[str, Row] = OrderedDict()
        self.writers: OrderedDict[str, Row] = OrderedDict()
        """Those of them that are exclusive."""
        self._ranks: Ranks | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._rows

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def put(self, row: Row) -> None:
        """Let it stand in line; one that does already keeps its place."""
        if self._ranks is not None and row.claim.id not in self._rows:
            self._ranks.add(row.order)
        self._rows[row.claim.id] = row
        if row.claim.mode == "exclusive":
            self.writers[row.claim.id] = row

    def pop(self, id_: str) -> Row | None:
        """Take it out of the line; None if it was not there."""
        row = self._rows.pop(id_, None)
        if row is not None:
            self.writers.pop(id_, None)
            if self._ranks is not None:
                self._ranks.remove(row.order)
        return row

    def ahead(self, order: int) -> int:
        """How many came before `order`, dead or alive."""
        if len(self._rows) <= SHORT:
            return sum(row.order < order for row in self._rows.values())
        if self._ranks is None:
            self._ranks = Ranks(row.order for row in self._rows.values())
        return self._ranks.below(order)


class Line:
    """The claims on one name that more than one claim is, or was, interested in."""

    __slots__ = ("holders", "in_order", "queue", "subtrees", "writers", "writing")

    def __init__(self) -> None:
        self.holders: OrderedDict[str, Row] = OrderedDict()
        self.in_order = True
        """Whether the holders are in the order of their arrival. One that adopts a grant has its place in line."""
        self.writing: dict[str, Row] = {}
        """Those of them that are exclusive."""
        self.queue = Queue()
        self.subtrees = self.writers = 0
        """How many of its claims cover a subtree, and how many are exclusive."""

    @classmethod
    def of(cls, row: Row) -> Line:
        """The line of one who holds it, and nobody else."""
        line = cls()
        line.put(row, new=True)
        return line

    def __bool__(self) -> bool:
        return bool(self.holders) or bool(self.queue)

    @property
    def plain(self) -> bool:
        """Whether none of its claims is shared, or covers a subtree."""
        return not self.subtrees and self.writers == len(self.holders) + len(self.queue)

    def rows(self) -> Iterator[Row]:
        """Those who hold, then those in line."""
        yield from self.holders.values()
        yield from self.queue

    def put(self, row: Row, new: bool) -> bool:
        """Take a claim as it is now; whether it stood in line and does no more."""
        claim = row.claim
        if new:
            self.subtrees += claim.subtree
            self.writers += claim.mode == "exclusive"
        if row.token is None:
            self.queue.put(row)
            return False
        if claim.id not in self.holders and self.holders:
            self.in_order = self.in_order and arrival(next(reversed(self.holders.values()))) < arrival(row)
        self.holders[claim.id] = row
        if claim.mode == "exclusive":
            self.writing[claim.id] = row
        return self.queue.pop(claim.id) is not None

    def drop(self, row: Row) -> bool:
        """Forget a claim; whether it stood in line."""
        claim = row.claim
        self.subtrees -= claim.subtree
        self.writers -= claim.mode == "exclusive"
        if self.holders.pop(claim.id, None) is None:
            return self.queue.pop(claim.id) is not None
        self.writing.pop(claim.id, None)
        self.in_order = self.in_order or not self.holders
        return False

    def first(self, shared: bool, before: float, alive: Callable[[Row], bool]) -> Row | None:
        """The first claim, alive, that is in the way of one which came at `before`: only a writer is in a reader's."""
        first: Row | None = None
        for row in self.writing.values() if shared else self.holders.values():
            if row.order < before and (first is None or arrival(row) < arrival(first)) and alive(row):
                first = row
            if self.in_order and (first is not None or row.order >= before):
                break
        for row in self.queue.writers.values() if shared else self.queue:
            if row.order >= before or (first is not None and arrival(row) > arrival(first)):
                break
            if alive(row):
                return row
        return first
