"""Who can never go on: the wait-for graph over owners.

Every claim is released once its owner has all that it waits for. So the owners that will
finish are the smallest set F with: an owner is in F when each of its waiting claims is
*served*, that is

* a lock: every earlier claim that conflicts with it belongs to an owner in F,
* a permit: fewer than `limit` of the earlier claims on it belong to owners not in F.

Whoever is not in F waits for ever. This is exact for the first-come-first-served rule, with
claims ahead in line counted like holders (a reader behind a queued writer waits for that
writer), and with permits as an OR: one permit holder that can finish is enough.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.core.conflicts import conflict
from holdfast.model import Claim


class Waiting(NamedTuple):
    """A claim as the graph sees it."""

    claim: Claim
    order: int
    granted: bool


class Knot(NamedTuple):
    """One owner in a cycle: what it waits for, and what it has that the one before it waits for."""

    waits: Claim
    has: Claim


def _arrival(waiting: Waiting) -> tuple[int, str]:
    return waiting.order, waiting.claim.id


class Ahead:
    """What the claims before a point in the order do to one that comes there; only unfinished owners count."""

    def __init__(self) -> None:
        self.unfinished: dict[tuple[str, str], int] = {}
        self.writers: dict[tuple[str, str], int] = {}
        self.subtrees: list[Claim] = []
        self.paths: list[Claim] = []

    def serves(self, claim: Claim) -> bool:
        """Whether the claim will be granted, given that all finished owners have released theirs."""
        line = (claim.kind, claim.name)
        if claim.limit:
            return self.unfinished.get(line, 0) < claim.limit
        on_name = self.unfinished if claim.mode == "exclusive" else self.writers
        if on_name.get(line, 0):
            return False
        across = self.paths if claim.subtree else self.subtrees if "/" in claim.name else ()
        return not any(conflict(claim, other) for other in across)

    def add(self, claim: Claim) -> None:
        """One more claim whose owner has not finished."""
        line = (claim.kind, claim.name)
        self.unfinished[line] = self.unfinished.get(line, 0) + 1
        if claim.mode == "exclusive":
            self.writers[line] = self.writers.get(line, 0) + 1
        if claim.subtree:
            self.subtrees.append(claim)
        if "/" in claim.name or claim.subtree:
            self.paths.append(claim)


def finishers(claims: Iterable[Waiting]) -> set[str]:
    """The owners that will have all that they wait for."""
    ordered = sorted(claims, key=_arrival)
    unserved: dict[str, int] = {}
    for waiting in ordered:
        unserved.setdefault(waiting.claim.owner, 0)
        if not waiting.granted:
            unserved[waiting.claim.owner] += 1
    finished = {owner for owner, count in unserved.items() if not count}
    served: set[str] = set()
    progress = True
    while progress:
        progress = False
        ahead = Ahead()
        for waiting in ordered:
            claim = waiting.claim
            if claim.owner in finished:
                continue
            if not waiting.granted and claim.id not in served and ahead.serves(claim):
                served.add(claim.id)
                progress = True
                unserved[claim.owner] -= 1
                if not unserved[claim.owner]:
                    finished.add(claim.owner)
                    continue
            ahead.add(claim)
    return finished


def blockers(waiting: Waiting, claims: Sequence[Waiting]) -> list[Waiting]:
    """The claims that this one has to see go."""
    claim = waiting.claim
    if claim.limit:
        line = (claim.kind, claim.name)
        return [
            other for other in claims if other.order < waiting.order and (other.claim.kind, other.claim.name) == line
        ]
    return [other for other in claims if other.order < waiting.order and conflict(claim, other.claim)]


def find_cycle(claims: Sequence[Waiting], newcomer_id: str) -> list[Knot]:
    """The shortest cycle through the newcomer's owner if it would wait for ever."""
    claims = sorted(claims, key=_arrival)
    newcomer = next(waiting for waiting in claims if waiting.claim.id == newcomer_id)
    home = newcomer.claim.owner
    finished = finishers(claims)
    if home in finished:
        return []
    stuck = [waiting for waiting in claims if waiting.claim.owner not in finished]
    # What the owner waits for besides comes second: it matters if a grant was given to one who waits already.
    besides = [one for one in stuck if one.claim.owner == home and not one.granted and one is not newcomer]
    cycle = _way_home([newcomer], stuck) or _way_home(besides, stuck)
    # Everybody else could go on before, so there is a way home. Were there none, it would wait for ever all the same.
    return cycle or [Knot(newcomer.claim, newcomer.claim)]


def _way_home(starts: Sequence[Waiting], stuck: Sequence[Waiting]) -> list[Knot]:
    """Breadth first from what an owner waits for to something that it has itself."""
    by_owner: dict[str, list[Waiting]] = {}
    for waiting in stuck:
        if not waiting.granted:
            by_owner.setdefault(waiting.claim.owner, []).append(waiting)
    came_from: dict[str, tuple[Waiting, Claim]] = {}
    line, seen = deque(starts), {waiting.claim.id for waiting in starts}
    while line:
        waiting = line.popleft()
        for other in blockers(waiting, stuck):
            if other.claim.owner == starts[0].claim.owner:
                return _walk_back(waiting, other.claim, came_from)
            for further in by_owner.get(other.claim.owner, ()):
                if further.claim.id not in seen:
                    seen.add(further.claim.id)
                    came_from[further.claim.id] = (waiting, other.claim)
                    line.append(further)
    return []


def _walk_back(last: Waiting, closing: Claim, came_from: dict[str, tuple[Waiting, Claim]]) -> list[Knot]:
    path: list[Knot] = []
    while last.claim.id in came_from:
        before, has = came_from[last.claim.id]
        path.append(Knot(last.claim, has))
        last = before
    path.append(Knot(last.claim, closing))
    return path[::-1]
