"""The lock table's rules by brute force: slow, and written from what is promised rather than from the code.

It remembers every claim and looks at all of them for every answer. Which claims hold is not
stored but follows from one rule: a claim holds when no live claim that excludes it came before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.model import Claim


def within(claim: Claim, path: list[str]) -> bool:
    """Whether the path is among those that the claim is about."""
    own = claim.name.split("/")
    return path == own or (claim.subtree and path[: len(own)] == own)


def overlap(one: Claim, other: Claim) -> bool:
    """Whether there is a path that both are about: then it is the name of one of them."""
    return within(one, other.name.split("/")) or within(other, one.name.split("/"))


def exclude(one: Claim, other: Claim) -> bool:
    """Whether the two cannot hold together."""
    return one.kind == other.kind and "exclusive" in (one.mode, other.mode) and overlap(one, other)


def same_line(one: Claim, other: Claim) -> bool:
    """Whether they are after the same permits."""
    return (one.kind, one.name) == (other.kind, other.name)


def serves(claim: Claim, before: Iterable[Claim]) -> bool:
    """Whether a claim holds, given the claims that came before it and live."""
    if claim.limit:
        return sum(same_line(claim, other) for other in before) < claim.limit
    return not any(exclude(claim, other) for other in before)


def stuck(line: list[tuple[int, Claim]]) -> set[str]:
    """The owners that wait for ever.

    Let every owner that waits for nothing finish and take all its claims away, serve who can be served
    then, and so on. Whoever is left when nobody can finish any more is deadlocked.
    """
    left = list(line)
    while True:
        waiting = {
            claim.owner
            for place, claim in left
            if not serves(claim, [other for earlier, other in left if earlier < place])
        }
        if len(still := [(place, claim) for place, claim in left if claim.owner in waiting]) == len(left):
            return waiting
        left = still


@dataclass
class Entry:
    """A claim that was admitted."""

    claim: Claim
    place: int
    token: int | None = None
    dies_at: float | None = None


class Reference:
    """All claims, who lives, and what was taken from whom."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ttls: dict[str, float] = {}
        self.ends: dict[str, float] = {}
        """By session: when it ends."""
        self.entries: dict[str, Entry] = {}
        self.withdrawn: set[str] = set()
        self.taken: set[str] = set()
        """Claims that an operator or an adopter took away."""
        self.tickets: dict[str, str] = {}
        self.history: list[tuple[Claim, int]] = []
        """Every grant there ever was."""
        self.places = 0

    def lives(self, session: str) -> bool:
        return self.ends.get(session, self.now) > self.now

    def alive(self, entry: Entry) -> bool:
        return self.lives(entry.claim.session) and (entry.dies_at is None or entry.dies_at > self.now)

    def living(self) -> list[Entry]:
        """Everybody who lives, in the order of arrival."""
        return sorted((entry for entry in self.entries.values() if self.alive(entry)), key=lambda entry: entry.place)

    def before(self, entry: Entry) -> list[Claim]:
        return [other.claim for other in self.living() if other.place < entry.place]

    def holds(self, entry: Entry) -> bool:
        return serves(entry.claim, self.before(entry))

    def holders(self) -> set[str]:
        """The ids of all that hold, or will as soon as somebody looks."""
        return {entry.claim.id for entry in self.living() if self.holds(entry)}

    def cover(self, claim: Claim) -> Entry | None:
        """The hold that a reentrant claim may continue."""
        mine = (
            entry
            for entry in self.living()
            if entry.token is not None
            and entry.claim.owner == claim.owner
            and same_line(entry.claim, claim)
            and (entry.claim.mode == "exclusive" or claim.mode == "shared")
            and (entry.claim.subtree or not claim.subtree)
        )
        if not claim.reentrant or claim.limit:
            return None
        # An owner that adopted from itself has entries of one place with different tokens: the table goes by id then.
        return min(mine, key=lambda entry: (entry.place, entry.claim.id), default=None)

    def other_limit(self, claim: Claim) -> bool:
        """Whether the semaphore is in use with another limit."""
        return any(same_line(entry.claim, claim) and entry.claim.limit != claim.limit for entry in self.living())

    def verdict(self, claim: Claim) -> str:
        """What becomes of a newcomer."""
        if not self.lives(claim.session):
            return "SessionOver"
        if claim.id in self.withdrawn | self.taken:
            return "Gone"
        if claim.limit and self.other_limit(claim):
            return "WrongLimit"
        living = [(entry.place, entry.claim) for entry in self.living()]
        if self.cover(claim) is not None or serves(claim, [other for _, other in living]):
            return "Granted"
        if not claim.waits:
            return "Refused"
        return "Deadlocked" if claim.owner in stuck([*living, (self.places + 1, claim)]) else "Place"

    def admit(self, claim: Claim) -> Entry:
        """A newcomer that was granted or given a place."""
        cover = self.cover(claim)
        if cover is not None:
            entry = Entry(claim, cover.place, cover.token, cover.dies_at)
            if claim.max_hold is not None:
                entry.dies_at = min(cover.dies_at or float("inf"), self.now + claim.max_hold)
        else:
            self.places += 1
            entry = Entry(claim, self.places)
        self.entries[claim.id] = entry
        return entry

    def granted(self, entry: Entry, token: int) -> None:
        """The table granted this claim with this token: that has to be right."""
        assert entry.token is None
        assert self.holds(entry), f"{entry.claim} was granted although another came before it"
        for earlier, seen in self.history:
            if same_line(earlier, entry.claim) or exclude(earlier, entry.claim):
                assert token > seen, f"token {token} is not above {seen}"
        self.history.append((entry.claim, token))
        entry.token = token
        if entry.claim.max_hold is not None:
            entry.dies_at = self.now + entry.claim.max_hold

    def hand(self, source: Entry, claim: Claim, token: int) -> None:
        """A grant changes hands; what the sender holds beside it and the adopter excludes is lost with it."""
        for entry in self.living():
            if entry is source or (entry.place == source.place and exclude(entry.claim, source.claim)):
                del self.entries[entry.claim.id]
                self.taken.add(entry.claim.id)
        assert token > max(seen for _, seen in self.history)
        self.history.append((claim, token))
        ends = [source.dies_at, None if claim.max_hold is None else self.now + claim.max_hold]
        dies_at = min((moment for moment in ends if moment is not None), default=None)
        self.entries[claim.id] = Entry(claim, source.place, token, dies_at)
