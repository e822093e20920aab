"""Those who hold one name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import merge
from itertools import chain, islice, takewhile

from holdfast.core.table.places import InOrder, Late, Place, arrival
from holdfast.core.table.rows import Row

SHORT = 64
"""As many claims as this are looked through rather than sorted by something."""


def first(in_order: Iterable[Row], late: Late | None, before: float, alive: Callable[[Row], bool]) -> Row | None:
    """The first of rows, alive, that came before `before`: of some in order, and of some that came too late for it."""
    found = _first(in_order, before, alive)
    if not late:
        return found
    other = _first(late.after(), before if found is None else found.order + 1, alive)
    if found is None or other is None:
        return found or other
    return min(found, other, key=arrival)


def _first(rows: Iterable[Row], before: float, alive: Callable[[Row], bool]) -> Row | None:
    for row in rows:
        if row.order >= before:
            break
        if alive(row):
            return row
    return None


class Slots:
    """Which permits are taken, a bit for each: a million of them are one number, counted on in microseconds."""

    __slots__ = ("_again", "taken")

    def __init__(self) -> None:
        self.taken = 0
        self._again: dict[int, int] = {}
        """How often more a slot is taken: a dead holder is still there when the next one gets its permit."""

    def take(self, slot: int) -> None:
        if self.taken >> slot & 1:
            self._again[slot] = self._again.get(slot, 0) + 1
        self.taken |= 1 << slot

    def give(self, slot: int) -> None:
        again = self._again.pop(slot, 0)
        if not again:
            self.taken ^= 1 << slot
        elif again > 1:
            self._again[slot] = again - 1


NONE = Late()
"""Of most names: it stays empty."""


class Holders:
    """They come and go in any order, and the first of them by arrival is at hand."""

    __slots__ = ("_by_owner", "_late", "_late_writers", "_rows", "_slots", "_writers")

    def __init__(self) -> None:
        self._rows, self._writers = InOrder(), InOrder()
        """By arrival, and those of them that are exclusive."""
        self._late = self._late_writers = NONE
        """The others, and those of them that are exclusive."""
        self._by_owner: dict[str, dict[str, Row]] | None = None
        self._slots: Slots | None = None

    def __len__(self) -> int:
        return len(self._rows) + len(self._late)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._rows or id_ in self._late

    def __iter__(self) -> Iterator[Row]:
        return chain(self._rows.values(), self._late.values())

    @property
    def taken(self) -> int:
        """The permits that they have, dead or alive, a bit for each."""
        return 0 if self._slots is None else self._slots.taken

    def put(self, row: Row) -> None:
        """Let it hold; one that does already keeps its place."""
        claim = row.claim
        rows, late = self._rows, claim.id in self._late
        if not late and claim.id not in rows:
            late = bool(rows) and arrival(next(reversed(rows.values()))) >= arrival(row)
            if row.slot is not None:
                self._slots = self._slots or Slots()
                self._slots.take(row.slot)
        if late and self._late is NONE:
            self._late, self._late_writers = Late(), Late()
        (self._late if late else rows).put(row)
        if claim.mode == "exclusive":
            (self._late_writers if late else self._writers).put(row)
        if self._by_owner is not None:
            self._by_owner.setdefault(claim.owner, {})[claim.id] = row
        elif len(self) > SHORT:
            # While they are few: later it would take long at once.
            self._owned()

    def pop(self, id_: str) -> Row | None:
        """Let it hold no more; None if it did not."""
        row = self._rows.take(id_)
        if row is not None:
            self._writers.take(id_)
        else:
            row = self._late.take(id_)
            if row is None:
                return None
            self._late_writers.take(id_)
        if row.slot is not None and self._slots is not None:
            self._slots.give(row.slot)
        if self._by_owner is not None:
            mine = self._by_owner[row.claim.owner]
            del mine[id_]
            if not mine:
                del self._by_owner[row.claim.owner]
        return row

    def first(self, shared: bool, before: float, alive: Callable[[Row], bool]) -> Row | None:
        """The first of them, alive, in the way of one which came at `before`: only a writer is in a reader's."""
        if shared:
            return first(self._writers.values(), self._late_writers, before, alive)
        return first(self._rows.values(), self._late, before, alive)

    def after(self, place: Place, most: int | None, alive: Callable[[Row], bool]) -> list[Row]:
        """The first of them, alive, after a place in the order of arrival."""
        rows = merge(self._rows.after(place), self._late.after(place), key=arrival)
        return list(islice(filter(alive, rows), most))

    def of_order(self, order: int) -> Iterator[Row]:
        """Those with one order: a hold, and what continues it."""
        for rows in (self._rows, self._late):
            yield from takewhile(lambda row: row.order == order, rows.after((order, "")))

    def of(self, owner: str) -> Collection[Row]:
        """What one owner holds."""
        if len(self) <= SHORT:
            return [row for row in self if row.claim.owner == owner]
        return self._owned().get(owner, {}).values()

    def owned_among(self, owners: dict[str, dict[str, Row]], besides: str) -> Iterator[Row]:
        """What these owners hold, and one besides."""
        if len(self) <= SHORT:
            yield from (row for row in self if row.claim.owner in owners or row.claim.owner == besides)
            return
        owned = self._owned()
        # Whichever are fewer are gone through.
        for owner in (owned.keys() & owners.keys()) | {besides}:
            yield from owned.get(owner, {}).values()

    def _owned(self) -> dict[str, dict[str, Row]]:
        if self._by_owner is None:
            self._by_owner = {}
            for row in self:
                self._by_owner.setdefault(row.claim.owner, {})[row.claim.id] = row
        return self._by_owner
