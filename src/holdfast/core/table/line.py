"""The claims on one name: those that hold, and those in line."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast.core.table.holders import SHORT, Holders, first
from holdfast.core.table.places import InOrder
from holdfast.core.table.rows import Row


class Queue:
    """Those in line, in the order of their arrival. Whoever comes, comes last."""

    __slots__ = ("_plain", "_rows", "_writers")

    def __init__(self) -> None:
        self._rows, self._writers = InOrder(), InOrder()
        """All, and those of them that are exclusive."""
        self._plain: InOrder | None = None
        """Those that cover no subtree, once there is one that does."""

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._rows

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def after(self, order: int, plain: bool = False) -> Iterator[Row]:
        """Those that came after `order`; `plain`: and cover no subtree."""
        rows = self._rows if self._plain is None or not plain else self._plain
        return rows.after((order + 1, ""))

    def put(self, row: Row) -> None:
        """Let it stand in line; one that does already keeps its place."""
        claim = row.claim
        if claim.subtree:
            self._plain = self._rows.copy() if self._plain is None else self._plain
        elif self._plain is not None:
            self._plain.put(row)
        self._rows.put(row)
        if claim.mode == "exclusive":
            self._writers.put(row)

    def pop(self, id_: str) -> Row | None:
        """Take it out of the line; None if it was not there."""
        row = self._rows.take(id_)
        if row is not None:
            self._writers.take(id_)
            if self._plain is not None:
                self._plain.take(id_)
        return row

    def ahead(self, order: int) -> int:
        """How many came before `order`, dead or alive."""
        if len(self._rows) <= SHORT:
            return sum(row.order < order for row in self._rows.values())
        return self._rows.places().below(order)

    def last_writer(self, before: float, alive: Callable[[Row], bool]) -> Iterator[Row]:
        """The last exclusive one that came before `before`, if there is one, and the dead ones behind it."""
        for row in self._writers.before(before):
            yield row
            if alive(row):
                break

    def first(self, shared: bool, before: float, alive: Callable[[Row], bool]) -> Row | None:
        """The first of them, alive, in the way of one which came at `before`: only a writer is in a reader's."""
        return first((self._writers if shared else self._rows).values(), None, before, alive)


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
