"""The claims on one name: those that hold, and those in line."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from holdfast.core.table.holders import SHORT, Holders, first
from holdfast.core.table.rows import Row

CHUNK = 512


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

    __slots__ = ("_plain", "_ranks", "_rows", "writers")

    def __init__(self) -> None:
        # Not a plain dictionary: looking for the first one of it passes all that have gone before.
        self._rows: OrderedDict[str, Row] = OrderedDict()
        self.writers: OrderedDict[str, Row] = OrderedDict()
        """Those of them that are exclusive."""
        self._plain: OrderedDict[str, Row] | None = None
        """Those that cover no subtree, once there is one that does."""
        self._ranks: Ranks | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._rows

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def plain(self) -> Iterator[Row]:
        """Those that cover no subtree."""
        return iter((self._rows if self._plain is None else self._plain).values())

    def put(self, row: Row) -> None:
        """Let it stand in line; one that does already keeps its place."""
        claim = row.claim
        if self._ranks is not None and claim.id not in self._rows:
            self._ranks.add(row.order)
        if claim.subtree:
            self._plain = self._rows.copy() if self._plain is None else self._plain
        elif self._plain is not None:
            self._plain[claim.id] = row
        self._rows[claim.id] = row
        if claim.mode == "exclusive":
            self.writers[claim.id] = row

    def pop(self, id_: str) -> Row | None:
        """Take it out of the line; None if it was not there."""
        row = self._rows.pop(id_, None)
        if row is not None:
            self.writers.pop(id_, None)
            if self._plain is not None:
                self._plain.pop(id_, None)
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

    def last_writer(self, before: float, alive: Callable[[Row], bool]) -> list[Row]:
        """The last exclusive one that came before `before`, if there is one."""
        earlier = (row for row in reversed(self.writers.values()) if row.order < before and alive(row))
        return list(islice(earlier, 1))

    def first(self, shared: bool, before: float, alive: Callable[[Row], bool]) -> Row | None:
        """The first of them, alive, in the way of one which came at `before`: only a writer is in a reader's."""
        return first((self.writers if shared else self._rows).values(), (), before, alive)


class Line:
    """The claims on one name that more than one claim is, or was, interested in."""

    __slots__ = ("covering", "holders", "queue", "writers")

    def __init__(self) -> None:
        self.holders = Holders()
        self.queue = Queue()
        self.writers = 0
        """How many of its claims are exclusive."""
        self.covering: Line | None = None
        """Those of its claims that cover a subtree, once there is one: they matter to others, below."""

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
        yield from self.holders
        yield from self.queue

    def put(self, row: Row, new: bool) -> bool:
        """Take a claim as it is now; whether it stood in line and does no more."""
        if row.claim.subtree:
            self.covering = self.covering or Line()
            self.covering._put(row, new)
        return self._put(row, new)

    def _put(self, row: Row, new: bool) -> bool:
        if new:
            self.writers += row.claim.mode == "exclusive"
        if row.token is None:
            self.queue.put(row)
            return False
        self.holders.put(row)
        return self.queue.pop(row.claim.id) is not None

    def drop(self, row: Row) -> bool:
        """Forget a claim; whether it stood in line."""
        if self.covering is not None and row.claim.subtree:
            self.covering._drop(row)
        return self._drop(row)

    def _drop(self, row: Row) -> bool:
        self.writers -= row.claim.mode == "exclusive"
        return self.holders.pop(row.claim.id) is None and self.queue.pop(row.claim.id) is not None

    def first(self, shared: bool, before: float, alive: Callable[[Row], bool]) -> Row | None:
        """The first claim, alive, that is in the way of one which came at `before`: only a writer is in a reader's."""
        holder = self.holders.first(shared, before, alive)
        return self.queue.first(shared, before if holder is None else holder.order, alive) or holder
