"""What lies under each path: whoever claims a subtree asks for the first of it, and for those in line there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator

from holdfast.core import names
from holdfast.core.table.directory import Name
from holdfast.core.table.holders import first
from holdfast.core.table.places import Late, arrival
from holdfast.core.table.rows import Row
from holdfast.model import Claim

COUNTED = "counted"
MANNERS = ("exclusive", COUNTED, "shared")
"""How a claim is held, those first that are in everybody's way."""


def manner(claim: Claim) -> str:
    """How it is held: permits are apart, because they do not go with a claim on a subtree."""
    return COUNTED if claim.limit else claim.mode


class Paths:
    """Claims by the paths above them, in the order of their arrival."""

    def __init__(self) -> None:
        # Plain dictionaries, because most paths are over locks that nobody waits for: these have to stay small. To pass
        # what has gone from the front of one takes a nanosecond each.
        self._below: dict[str, dict[Name, dict[str, Row]]] = {how: {} for how in MANNERS}
        self._late: dict[str, dict[Name, Late]] = {how: {} for how in MANNERS}
        """Those that came too late for the order."""
        self._in_line: dict[str, dict[Name, list[tuple[int, str]]]] = {how: {} for how in MANNERS}
        """Those that wait: their order and name, sorted."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Paths) and (self._all(), self._in_line) == (other._all(), other._in_line)

    def _all(self) -> dict[tuple[str, Name, str], Row]:
        return {
            (how, key, id_): row
            for how in MANNERS
            for home in (self._below[how], self._late[how])
            for key, rows in home.items()
            for id_, row in rows.items()
        }

    __hash__ = None  # type: ignore[assignment]

    def put(self, row: Row, new: bool) -> None:
        """The claim is as given."""
        claim = row.claim
        kind, how, waits = claim.kind, manner(claim), row.token is None
        below, late = self._below[how], self._late[how]
        for path in names.ancestors(claim.name):
            key = (kind, path)
            rows = below.get(key)
            if rows is None:
                in_order = new or key not in late
            elif new:
                in_order = next(reversed(rows.values())).order < row.order
            else:
                in_order = claim.id in rows
            if in_order:
                below.setdefault(key, {})[claim.id] = row
            else:
                late.setdefault(key, Late()).put(row)
            if new is waits:
                if new:
                    insort(self._in_line[how].setdefault(key, []), (row.order, claim.name))
                else:
                    self._step_out(how, key, row)

    def drop(self, row: Row) -> None:
        """The claim is forgotten."""
        claim = row.claim
        how = manner(claim)
        below, late = self._below[how], self._late[how]
        for path in names.ancestors(claim.name):
            key = (claim.kind, path)
            rows = below.get(key)
            if rows is not None and rows.pop(claim.id, None) is not None:
                if not rows:
                    del below[key]
            else:
                late[key].take(claim.id)
                if not late[key]:
                    del late[key]
            if row.token is None:
                self._step_out(how, key, row)

    def _step_out(self, how: str, key: Name, row: Row) -> None:
        """It stands in line no more, if it did."""
        line, place = self._in_line[how].get(key, []), (row.order, row.claim.name)
        at = bisect_left(line, place)
        if at < len(line) and line[at] == place:
            del line[at]
            if not line:
                del self._in_line[how][key]

    def rows(self, key: Name) -> Iterator[Row]:
        """Every claim under a path."""
        for how in MANNERS:
            yield from self._below[how].get(key, {}).values()
            yield from self._late[how].get(key, {}).values()

    def first(self, key: Name, shared: bool, before: float, alive: Callable[[Row], bool]) -> Row | None:
        """The first claim under a path, alive, that is in the way of one which came at `before`."""
        found: Row | None = None
        for how in MANNERS[:2] if shared else MANNERS:
            row = self._first(how, key, before, alive)
            if row is not None and (found is None or arrival(row) < arrival(found)):
                found = row
        return found

    def permit(self, key: Name, alive: Callable[[Row], bool]) -> Row | None:
        """The first claim for a permit under a path, alive."""
        return self._first(COUNTED, key, float("inf"), alive)

    def _first(self, how: str, key: Name, before: float, alive: Callable[[Row], bool]) -> Row | None:
        return first(self._below[how].get(key, {}).values(), self._late[how].get(key), before, alive)

    def crowded(self, key: Name) -> bool:
        """Whether anybody stands in line under a path."""
        return key in self._in_line["exclusive"] or key in self._in_line["shared"]

    def waited_for(
        self, key: Name, how: str, after: float, before: float, most: int | None = None
    ) -> tuple[set[str], int | None]:
        """Names under a path on which somebody stands in line who came between these two numbers.

        Those of the first `most` claims; the second value is the number of the last of these, if there are more.
        """
        line = self._in_line[how].get(key, [])
        low, high = bisect_right(line, after, key=_order), bisect_left(line, before, key=_order)
        if most is None or high - low <= most:
            return {name for _, name in line[low:high]}, None
        return {name for _, name in line[low : low + most]}, line[low + most - 1][0]

    def count(self, key: Name) -> int:
        """How many claims there are under a path."""
        return sum(len(home[how].get(key, ())) for how in MANNERS for home in (self._below, self._late))


def _order(place: tuple[int, str]) -> int:
    return place[0]
