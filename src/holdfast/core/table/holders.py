"""Those who hold one name."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest
from itertools import chain, islice

from holdfast.core.table.rows import Row

SHORT = 64
"""As many claims as this are looked through rather than sorted by something."""


def arrival(row: Row) -> tuple[int, str]:
    """What rows are sorted by; a re-entered claim has the order of the hold that it continues."""
    return row.order, row.claim.id


MOST_DEAD = 10_000
"""Dead claims that are passed to find a live one. Beyond these a dead one is in the way until it is removed."""


def first(in_order: Iterable[Row], early: Iterable[Row], before: float, alive: Callable[[Row], bool]) -> Row | None:
    """The first of rows, alive, that came before `before`: of many in order, and of some that came too late for it."""
    found: Row | None = None
    for passed, row in enumerate(in_order):
        if row.order >= before:
            break
        if passed >= MOST_DEAD or alive(row):
            found = row
            break
    for row in early:
        if row.order < before and (found is None or arrival(row) < arrival(found)) and alive(row):
            found = row
    return found


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


class Holders:
    """They come and go in any order, and the first of them by arrival is at hand."""

    __slots__ = ("_by_owner", "_early", "_places", "_rows", "_slots", "_writers")

    def __init__(self) -> None:
        self._rows: OrderedDict[str, Row] = OrderedDict()
        """By arrival."""
        self._writers: OrderedDict[str, Row] = OrderedDict()
        """Those of them that are exclusive."""
        self._early: dict[str, Row] = {}
        """The others: one that adopts a grant, or enters again, has its place before the last one."""
        self._by_owner: dict[str, dict[str, Row]] | None = None
        self._places: list[tuple[int, str]] | None = None
        """The places of `_rows` in order, and of some that are gone, made when they are gone through page by page."""
        self._slots: Slots | None = None

    def __len__(self) -> int:
        return len(self._rows) + len(self._early)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._rows or id_ in self._early

    def __iter__(self) -> Iterator[Row]:
        return chain(self._rows.values(), self._early.values())

    @property
    def taken(self) -> int:
        """The permits that they have, dead or alive, a bit for each."""
        return 0 if self._slots is None else self._slots.taken

    def put(self, row: Row) -> None:
        """Let it hold; one that does already keeps its place."""
        claim = row.claim
        rows, early = self._rows, claim.id in self._early
        if not early and claim.id not in rows:
            early = bool(rows) and arrival(next(reversed(rows.values()))) >= arrival(row)
            if row.slot is not None:
                self._slots = self._slots or Slots()
                self._slots.take(row.slot)
        if early:
            self._early[claim.id] = row
        else:
            if self._places is not None and claim.id not in rows:
                if not self._places or self._places[-1] < arrival(row):
                    self._places.append(arrival(row))
                else:
                    self._places = None  # the last place is of one that is gone, and later than this
            rows[claim.id] = row
            if claim.mode == "exclusive":
                self._writers[claim.id] = row
        if self._by_owner is not None:
            self._by_owner.setdefault(claim.owner, {})[claim.id] = row
        elif len(self) > SHORT:
            # While they are few: later it would take long at once.
            self._owned()

    def pop(self, id_: str) -> Row | None:
        """Let it hold no more; None if it did not."""
        row = self._rows.pop(id_, None) or self._early.pop(id_, None)
        if row is None:
            return None
        if self._places is not None and len(self._places) > SHORT + 2 * len(self._rows):
            self._places = None
        self._writers.pop(id_, None)
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
        if not shared:
            return first(self._rows.values(), self._early.values(), before, alive)
        writing = (row for row in self._early.values() if row.claim.mode == "exclusive")
        return first(self._writers.values(), writing, before, alive)

    def after(self, place: tuple[int, str], most: int, alive: Callable[[Row], bool]) -> list[Row]:
        """The first of them, alive, after a place in the order of arrival."""
        rows = self._rows
        if self._places is None:
            self._places = [(row.order, id_) for id_, row in rows.items()]
        places = self._places
        later = (places[at] for at in range(bisect_right(places, place), len(places)))
        found = ((each, rows.get(each[1])) for each in later)
        in_order = (row for each, row in found if row is not None and arrival(row) == each and alive(row))
        early = (row for row in self._early.values() if arrival(row) > place and alive(row))
        return nsmallest(most, chain(islice(in_order, most), early), key=arrival)

    def of(self, owner: str) -> Iterable[Row]:
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
