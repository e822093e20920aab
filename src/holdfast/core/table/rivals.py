"""Who is in whose way: the claims on a name, and those across its path."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.core import names
from holdfast.core.table.directory import Name
from holdfast.core.table.line import Line
from holdfast.core.table.paths import Paths
from holdfast.core.table.places import arrival
from holdfast.core.table.rows import Row
from holdfast.model import Claim

INFINITY = float("inf")
Alive = Callable[[Row], bool]


class Rivals:
    """All claims, by their names. Whoever asks says who is alive."""

    def __init__(self) -> None:
        self.alone: dict[Name, Row] = {}
        """Names with one claim, which holds: most are, so they cost no line of their own."""
        self.lines: dict[Name, Line] = {}
        """All other names in use."""
        self.paths = Paths()
        """Those of all these claims whose names have a path."""

    def line(self, kind: str, name: str) -> Line | None:
        """The claims on a name, to look at."""
        line = self.lines.get((kind, name))
        if line is None:
            row = self.alone.get((kind, name))
            return None if row is None else Line.of(row)
        return line

    def covering(self, kind: str, paths: Iterable[str]) -> list[Line]:
        """For each of these paths that somebody claims with its subtree, the claims that do."""
        found = []
        for path in paths:
            key = (kind, path)
            if key in self.alone:
                if self.alone[key].claim.subtree:
                    found.append(Line.of(self.alone[key]))
            elif key in self.lines and (covering := self.lines[key].covering):
                found.append(covering)
        return found

    def blocker(self, claim: Claim, before: float, alive: Alive) -> Row | None:
        """The first live claim that conflicts and came earlier: on the name itself, or else across the path."""
        line = self.line(claim.kind, claim.name)
        shared = claim.mode == "shared"
        if line is not None and (line.writers or not shared):
            first = line.first(shared, before, alive)
            if first is not None:
                return first
        return self.across(claim, before, alive) if "/" in claim.name or claim.subtree else None

    def across(self, claim: Claim, before: float, alive: Alive) -> Row | None:
        """The same on other names: subtree claims above, and all below a subtree claim."""
        shared = claim.mode == "shared"
        found = self.paths.first((claim.kind, claim.name), shared, before, alive) if claim.subtree else None
        for line in self.covering(claim.kind, names.ancestors(claim.name)):
            row = line.first(shared, before, alive)
            if row is not None and (found is None or arrival(row) < arrival(found)):
                found = row
        return found

    def other_way(self, claim: Claim, alive: Alive) -> Row | None:
        """A live claim across the path that is counted where this one is not, or the other way round."""
        if claim.limit:
            return self.across(claim, INFINITY, alive) if "/" in claim.name else None
        return self.paths.permit((claim.kind, claim.name), alive) if claim.subtree else None

    def affected(self, claim: Claim, after: float, alive: Alive, most: int | None = None) -> tuple[str, ...]:
        """Names of lines with somebody in them that a claim like this can hold up; `after` is when it came, or -1."""
        line = self.lines.get((claim.kind, claim.name))
        found = [claim.name] if line is not None and line.queue else []
        for path in names.ancestors(claim.name):
            above = self.lines.get((claim.kind, path))
            if above is not None and above.covering and above.covering.queue:
                found.append(path)
        if claim.subtree and self.paths.crowded((claim.kind, claim.name)):
            found += self.affected_below(claim, after, alive, most)[0]
        return tuple(sorted(found))

    def affected_below(self, claim: Claim, after: float, alive: Alive, most: int | None) -> tuple[set[str], int | None]:
        """Those under a subtree claim that came after it, and before the next one that holds them up as it did.

        At most about `most` of them; then the second value is the number after which there are more.
        """

        def other(row: Row) -> bool:
            return row.claim.id != claim.id and alive(row)

        def next_one(shared: bool) -> float:
            found = (line.first(shared, INFINITY, other) for line in covering)
            return min((row.order for row in found if row is not None), default=INFINITY)

        key = (claim.kind, claim.name)
        covering = self.covering(claim.kind, (*names.ancestors(claim.name), claim.name))
        writers, last = self.paths.waited_for(key, "exclusive", after, next_one(shared=False), most)
        if claim.mode == "shared" and after >= 0 and most is None:
            return writers, last
        readers, other_last = self.paths.waited_for(key, "shared", after, next_one(shared=True), most)
        lasts = [number for number in (last, other_last) if number is not None]
        return writers | readers, min(lasts, default=None)
