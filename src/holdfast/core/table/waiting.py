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

    def __len__(self) -> int:
        return sum(map(len, self.by_owner.values()))

    def put(self, row: Row) -> None:
        """The claim stands in line."""
        claim = row.claim
        mine = self.by_owner.setdefault(claim.owner, {})
        mine[claim.id] = row
        if len(mine) >= 2:
            for other in (row,) if len(mine) > 2 else mine.values():
                self._besides.setdefault((other.claim.kind, other.claim.name), {})[other.claim.id] = other

    def drop(self, claim: Claim) -> None:
        """It does no more."""
        mine = self.by_owner[claim.owner]
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

    def besides(self, kind: str, name: str, home: str) -> Iterator[Row]:
        """Who waits for this, and for something else too, as `home` is about to."""
        yield from self._besides.get((kind, name), {}).values()
        mine = self.by_owner.get(home, {})
        if len(mine) == 1:
            yield from (row for row in mine.values() if (row.claim.kind, row.claim.name) == (kind, name))
