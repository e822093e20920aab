"""Rows in the order of their arrival: however many there are, one is found, added or removed at little cost."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from holdfast.core.table.rows import Row

Place = tuple[int, str]
"""What rows are sorted by: the order, then the claim's id. A re-entered claim has the order of its hold."""
START: Place = (-1, "")
"""Before every place."""
CHUNK = 512


def arrival(row: Row) -> Place:
    """The place of a row."""
    return row.order, row.claim.id


class Places:
    """A sorted set of places that grows and shrinks anywhere."""

    __slots__ = ("_chunks", "_firsts")

    def __init__(self, places: Iterable[Place] = ()) -> None:
        found = list(places)
        self._chunks = [found[start : start + CHUNK] for start in range(0, len(found), CHUNK)]
        self._firsts = [chunk[0] for chunk in self._chunks]
        """What each chunk began with: no place in the chunk is below it."""

    def add(self, place: Place) -> None:
        """Take a place that is not in the set."""
        if not self._chunks:
            self._chunks.append([place])
            self._firsts.append(place)
            return
        at = max(0, bisect_right(self._firsts, place) - 1)
        chunk = self._chunks[at]
        insort(chunk, place)
        self._firsts[at] = min(self._firsts[at], place)
        if len(chunk) > 2 * CHUNK:
            self._chunks.insert(at + 1, chunk[CHUNK:])
            self._firsts.insert(at + 1, chunk[CHUNK])
            del chunk[CHUNK:]

    def remove(self, place: Place) -> None:
        """Drop a place that is in the set."""
        at = bisect_right(self._firsts, place) - 1
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, place)]
        if not chunk:
            del self._chunks[at], self._firsts[at]

    def below(self, order: int) -> int:
        """How many have a lower order."""
        at = bisect_left(self._firsts, (order, "")) - 1
        if at < 0:
            return 0
        return sum(map(len, self._chunks[:at])) + bisect_left(self._chunks[at], (order, ""))

    def after(self, place: Place) -> Iterator[Place]:
        """Those behind a place, in order. The set must not change meanwhile."""
        at = max(0, bisect_right(self._firsts, place) - 1)
        for number in range(at, len(self._chunks)):
            chunk = self._chunks[number]
            yield from chunk[bisect_right(chunk, place) :] if number == at else chunk

    def before(self, order: float) -> Iterator[Place]:
        """Those of a lower order, the last one first. The set must not change meanwhile."""
        for number in range(bisect_left(self._firsts, (order, "")) - 1, -1, -1):
            chunk = self._chunks[number]
            for at in range(bisect_left(chunk, (order, "")) - 1, -1, -1):
                yield chunk[at]


class InOrder(OrderedDict[str, Row]):
    """Rows by their ids that come in the order of their arrival. Their places are known once they are needed."""

    # Not a plain dictionary: looking for the first one of it passes all that have gone before.
    __slots__ = ("_places",)

    def __init__(self, rows: Iterable[tuple[str, Row]] = ()) -> None:
        super().__init__(rows)
        self._places: Places | None = None

    def put(self, row: Row) -> None:
        """Take a row that comes after all others, or replace the one with its id, which has the same place."""
        id_ = row.claim.id
        if self._places is not None and id_ not in self:
            self._places.add(arrival(row))
        self[id_] = row

    def take(self, id_: str) -> Row | None:
        """Remove a row; None if it was not there."""
        row = self.pop(id_, None)
        if row is not None and self._places is not None:
            self._places.remove(arrival(row))
        return row

    def after(self, place: Place) -> Iterator[Row]:
        """Those behind a place, in order."""
        first = next(iter(self.values()), None)
        if first is None or arrival(first) > place:
            return iter(self.values())
        return (self[id_] for _, id_ in self.places().after(place))

    def before(self, order: float) -> Iterator[Row]:
        """Those of a lower order, the last one first."""
        last = next(reversed(self.values()), None)
        if last is None or last.order < order:
            return reversed(self.values())
        return (self[id_] for _, id_ in self.places().before(order))

    def places(self) -> Places:
        """Where they stand."""
        if self._places is None:
            self._places = Places(map(arrival, self.values()))
        return self._places


class Late(dict[str, Row]):
    """Rows by their ids that come in any order: one that adopts, or enters again, has a place before the last one."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        super().__init__()
        self._places = Places()

    def put(self, row: Row) -> None:
        """Take a row, or replace the one with its id, which has the same place."""
        id_ = row.claim.id
        if id_ not in self:
            self._places.add(arrival(row))
        self[id_] = row

    def take(self, id_: str) -> Row | None:
        """Remove a row; None if it was not there."""
        row = self.pop(id_, None)
        if row is not None:
            self._places.remove(arrival(row))
        return row

    def after(self, place: Place = START) -> Iterator[Row]:
        """Those behind a place, in order."""
        return (self[id_] for _, id_ in self._places.after(place))
