"""The claims on one name: those that hold, and those in line."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator

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

    __slots__ = ("_ranks", "_rows")

    def __init__(self) -> None:
        # Not a plain dictionary: looking for the first one of it passes all that have gone before.
        self._rows: OrderedDict[str, Row] = OrderedDict()
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

    def pop(self, id_: str) -> Row | None:
        """Take it out of the line; None if it was not there."""
        row = self._rows.pop(id_, None)
        if row is not None and self._ranks is not None:
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

    __slots__ = ("holders", "queue", "subtrees", "writers")

    def __init__(self) -> None:
        self.holders: dict[str, Row] = {}
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
        self.holders[claim.id] = row
        return self.queue.pop(claim.id) is not None

    def drop(self, row: Row) -> bool:
        """Forget a claim; whether it stood in line."""
        claim = row.claim
        self.subtrees -= claim.subtree
        self.writers -= claim.mode == "exclusive"
        return self.holders.pop(claim.id, None) is None and self.queue.pop(claim.id) is not None
