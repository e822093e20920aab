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
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import NamedTuple

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


LaneKey = tuple[str, str, str, bool]
"""On a name, or over or under it (only where somebody has the subtree); and whether readers are in the way too."""


class Lane:
    """Claims of which a later one waits for the earlier ones: on one name, or on one and what is above or below it.

    Places are positions in the order of arrival. Everything moves forward only, so that a line of any length
    costs no more than to look at each claim in it once.
    """

    __slots__ = ("_alive", "_counted", "_passed", "members", "room", "watchers")

    def __init__(self, room: int) -> None:
        self.room = room
        """How many unfinished members are too many to have before oneself: 1, or as many as there are permits."""
        self.members: list[int] = []
        """The places of those who are in the way."""
        self.watchers: list[int] = []
        """The places of those who wait for that."""
        self._counted = self._alive = self._passed = 0
        """How many members were looked at, how many of those have not finished; how many watchers are served here."""

    def leave(self, place: int) -> None:
        """The owner of a member has finished."""
        if self._counted and place <= self.members[self._counted - 1]:
            self._alive -= 1

    def served(self, finished: set[int]) -> Iterator[int]:
        """Watchers that nobody is in the way of any more, each of them once."""
        while self._alive < self.room and self._counted < len(self.members):
            self._alive += self.members[self._counted] not in finished
            self._counted += 1
        upto = self.members[self._counted - 1] if self._alive >= self.room else inf
        while self._passed < len(self.watchers) and self.watchers[self._passed] <= upto:
            yield self.watchers[self._passed]
            self._passed += 1


class Lanes:
    """Who may be in whose way, among some claims in the order of their arrival."""

    def __init__(self, claims: Sequence[Waiting]) -> None:
        self._lanes: dict[LaneKey, Lane] = {}
        self.watched: dict[int, list[Lane]] = {}
        """For each claim that waits, by its place: the lanes in which it does."""
        self.joined: list[list[Lane]] = []
        """For each claim, by its place: the lanes in which others may wait for it."""
        subtrees = {(one.claim.kind, one.claim.name) for one in claims if one.claim.subtree}
        for place, waiting in enumerate(claims):
            if not waiting.granted:
                found = [self._lane(key, waiting.claim) for key in _watched(waiting.claim, subtrees)]
                self.watched[place] = found
                for lane in found:
                    lane.watchers.append(place)
        for place, waiting in enumerate(claims):
            joined = [self._lanes[key] for key in _joined(waiting.claim, subtrees) if key in self._lanes]
            self.joined.append(joined)
            for lane in joined:
                lane.members.append(place)

    def all(self) -> list[Lane]:
        """Those in which somebody waits."""
        return list(self._lanes.values())

    def leave(self, place: int) -> list[Lane]:
        """The owner of a claim has finished; the lanes in which others may go on."""
        for lane in self.joined[place]:
            lane.leave(place)
        return self.joined[place]

    def _lane(self, key: LaneKey, claim: Claim) -> Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(claim.limit or 1)
        return lane


def _above(claim: Claim, subtrees: set[tuple[str, str]]) -> Iterator[str]:
    """The names above a claim of which somebody has, or wants, the subtree."""
    at = claim.name.find("/") if subtrees else -1
    while at >= 0:
        if (claim.kind, claim.name[:at]) in subtrees:
            yield claim.name[:at]
        at = claim.name.find("/", at + 1)


def _watched(claim: Claim, subtrees: set[tuple[str, str]]) -> Iterator[LaneKey]:
    """Where a claim waits for those before it."""
    readers = claim.mode == "exclusive" or bool(claim.limit)
    yield "on", claim.kind, claim.name, readers
    for name in _above(claim, subtrees):
        yield "over", claim.kind, name, readers
    if claim.subtree:
        yield "under", claim.kind, claim.name, readers


def _joined(claim: Claim, subtrees: set[tuple[str, str]]) -> Iterator[LaneKey]:
    """Where others may wait for a claim: those who let readers pass only if it is a writer."""
    for readers in (True, False) if claim.mode == "exclusive" else (True,):
        yield "on", claim.kind, claim.name, readers
        if claim.subtree:
            yield "over", claim.kind, claim.name, readers
        for name in _above(claim, subtrees):
            yield "under", claim.kind, name, readers


def finishers(claims: Iterable[Waiting]) -> set[str]:
    """The owners that will have all that they wait for."""
    ordered = sorted(claims, key=_arrival)
    lanes = Lanes(ordered)
    places: dict[str, list[int]] = {}
    unserved: dict[str, int] = {}
    for place, waiting in enumerate(ordered):
        owner = waiting.claim.owner
        places.setdefault(owner, []).append(place)
        unserved[owner] = unserved.get(owner, 0) + (not waiting.granted)
    finished = {owner for owner, count in unserved.items() if not count}
    gone = {place for owner in finished for place in places[owner]}
    blocked = {place: len(watched) for place, watched in lanes.watched.items()}
    moved = lanes.all()
    while moved:
        for place in moved.pop().served(gone):
            owner = ordered[place].claim.owner
            blocked[place] -= 1
            if blocked[place]:
                continue
            unserved[owner] -= 1
            if not unserved[owner]:
                finished.add(owner)
                gone.update(places[owner])
                for left in places[owner]:
                    moved += lanes.leave(left)
    return finished


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
    ahead = Blockers(stuck)
    by_owner: dict[str, list[Waiting]] = {}
    for waiting in stuck:
        if not waiting.granted:
            by_owner.setdefault(waiting.claim.owner, []).append(waiting)
    came_from: dict[str, tuple[Waiting, Claim]] = {}
    line, seen = deque(starts), {waiting.claim.id for waiting in starts}
    while line:
        waiting = line.popleft()
        for other in ahead.further(waiting):
            if other.claim.owner == starts[0].claim.owner:
                return _walk_back(waiting, other.claim, came_from)
            for further in by_owner.get(other.claim.owner, ()):
                if further.claim.id not in seen:
                    seen.add(further.claim.id)
                    came_from[further.claim.id] = (waiting, other.claim)
                    line.append(further)
    return []


class Blockers:
    """What claims have to see go, each of them told once: whoever asks later finds those behind it."""

    def __init__(self, claims: Sequence[Waiting]) -> None:
        self._claims, self._lanes = claims, Lanes(claims)
        self._places = {waiting.claim.id: place for place, waiting in enumerate(claims)}
        self._told: dict[Lane, int] = {}

    def further(self, waiting: Waiting) -> list[Waiting]:
        """Those of this claim that nobody has asked for yet, in the order of their arrival."""
        found: set[int] = set()
        for lane in self._lanes.watched[self._places[waiting.claim.id]]:
            told, members = self._told.get(lane, 0), lane.members
            while told < len(members) and self._claims[members[told]].order < waiting.order:
                found.add(members[told])
                told += 1
            self._told[lane] = told
        return [self._claims[place] for place in sorted(found)]


def _walk_back(last: Waiting, closing: Claim, came_from: dict[str, tuple[Waiting, Claim]]) -> list[Knot]:
    path: list[Knot] = []
    while last.claim.id in came_from:
        before, has = came_from[last.claim.id]
        path.append(Knot(last.claim, has))
        last = before
    path.append(Knot(last.claim, closing))
    return path[::-1]
