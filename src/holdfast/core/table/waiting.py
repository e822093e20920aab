"""The claims in line, by their owners."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.core.table.rows import Row
from holdfast.model import Claim


class Waiting:
    """Who waits for what."""

    def __init__(self) -> None:
        self.by_owner: dict[str, dict[str, Row]] = {}
        self._besides: dict[tuple[str, str], dict[str, Row]] = {}
        """By what is waited for: those of owners that wait for something else too, as hardly anybody does."""
        self.count = 0
        """How many claims wait."""
        self._queues: dict[tuple[str, str], int] = {}
        """How many wait for each name that is waited for."""
        self._of_length: dict[int, int] = {}
        """How many names have a queue of each length."""
        self.longest = 0
        """The length of the longest queue."""

    def __len__(self) -> int:
        return self.count

    def _lengthen(self, claim: Claim, by: int) -> None:
        """The queue of a name has one claim more, or one less."""
        self.count += by
        key = (claim.kind, claim.name)
        length = self._queues.pop(key, 0)
        lengths = self._of_length
        if length:
            lengths[length] -= 1
            if not lengths[length]:
                del lengths[length]
        length += by
        if length:
            self._queues[key] = length
            lengths[length] = lengths.get(length, 0) + 1
        if length > self.longest or self.longest not in lengths:
            self.longest = length

    def put(self, row: Row) -> None:
        """The claim stands in line."""
        claim = row.claim
        mine = self.by_owner.setdefault(claim.owner, {})
        if claim.id not in mine:
            self._lengthen(claim, 1)
        mine[claim.id] = row
        if len(mine) >= 2:
            for other in (row,) if len(mine) > 2 else mine.values():
                self._besides.setdefault((other.claim.kind, other.claim.name), {})[other.claim.id] = other

    def drop(self, claim: Claim) -> None:
        """It does no more."""
        mine = self.by_owner[claim.owner]
        self._lengthen(claim, -1)
        if len(mine) >= 2:
            for other in (mine[claim.id],) if len(mine) > 2 else mine.values():
                self._forget(other.claim)
        del mine[claim.id]
        if not mine:
            del self.by_owner[claim.owner]

    def _forget(self, claim: Claim) -> None:
        line = self._besides[claim.kind, claim.name]
        del line[claim.id]
        if not line:
            del self._besides[claim.kind, claim.name]

    def of(self, owners: Iterable[str]) -> Iterator[Row]:
        """What these wait for."""
        return (row for owner in owners for row in self.by_owner.get(owner, {}).values())

    def matters(self, owner: str, home: str) -> bool:
        """Whether what an owner holds can be part of a cycle."""
        return owner in self.by_owner or owner == home

    def matters_below(self, row: Row, home: str, few: bool) -> bool:
        """The same for a claim under a subtree; `few`: of those in line, only if its owner waits for more than this."""
        owner = row.claim.owner
        if row.token is None and few:
            return owner == home or len(self.by_owner[owner]) > 1
        return owner in self.by_owner or owner == home

    def besides(self, kind: str, name: str, home: str) -> Iterator[Row]:
        """Who waits for this, and for something else too, as `home` is about to."""
        yield from self._besides.get((kind, name), {}).values()
        mine = self.by_owner.get(home, {})
        if len(mine) == 1:
            yield from (row for row in mine.values() if (row.claim.kind, row.claim.name) == (kind, name))
