"""Who waits for whom, across names: worked out from what the engine lists."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from holdfast.cli import processes
from holdfast.core.conflicts import conflict
from holdfast.model import Claim, LockInfo, Party


@dataclass(frozen=True)
class Entry:
    """A claim with all that decides whom it blocks."""

    party: Party
    claim: Claim
    limit: int
    position: int
    """The place in line; 0 for a holder."""

    @property
    def held(self) -> bool:
        return self.party.token is not None


@dataclass
class Wait:
    """What an owner waits for, and who is in its way."""

    entry: Entry
    blockers: list[Node] = field(default_factory=list)


@dataclass
class Node:
    """One who is in the way, and what it waits for itself."""

    entry: Entry
    waits: list[Wait] = field(default_factory=list)
    seen_above: bool = False
    """Whether this owner stands further up already: a cycle."""
    remark: str = ""

    def as_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        entry = self.entry
        return {
            **asdict(entry.party),
            "kind": entry.claim.kind,
            "position": entry.position or None,
            "remark": self.remark,
            "cycle": self.seen_above,
            "waits_for": [
                {
                    "kind": wait.entry.claim.kind,
                    "name": wait.entry.claim.name,
                    "position": wait.entry.position,
                    "blocked_by": [blocker.as_dict() for blocker in wait.blockers],
                }
                for wait in self.waits
            ],
        }


class Waits:
    """All claims of a namespace, and the questions that people have about them."""

    def __init__(self, infos: Iterable[LockInfo]) -> None:
        self.entries = [entry for info in infos for entry in _entries(info)]

    def in_the_way(self, kind: str, name: str) -> list[Node]:
        """Who holds what an exclusive claim on the name would have to wait for."""
        target = Claim("", "", "", kind, name)
        holders = (entry for entry in self.entries if entry.held and conflict(entry.claim, target))
        return [self.node(entry, ()) for entry in holders]

    def waiters(self, kind: str, name: str) -> list[Node]:
        """Who waits for the name, in order."""
        found = [one for one in self.entries if not one.held and (one.claim.kind, one.claim.name) == (kind, name)]
        return [self.node(entry, (), entry) for entry in sorted(found, key=lambda one: one.position)]

    def held_by(self, owner: str) -> list[Entry]:
        """All that an owner holds."""
        return [entry for entry in self.entries if entry.held and entry.party.owner == owner]

    def blocked(self, held: Entry) -> int:
        """How many claims wait because of one that is held."""
        return sum(1 for entry in self.entries if not entry.held and self._blocks(held, entry))

    def node(self, entry: Entry, above: tuple[str, ...], but: Entry | None = None) -> Node:
        """A claim with what its owner waits for elsewhere, as deep as it goes."""
        owner = entry.party.owner
        node = Node(entry, seen_above=owner in above, remark=state_of(entry.party))
        if not node.seen_above:
            elsewhere = [one for one in self.entries if one.party.owner == owner and not one.held and one is not but]
            node.waits = [self.wait(waiting, (*above, owner)) for waiting in elsewhere]
        return node

    def wait(self, waiting: Entry, above: tuple[str, ...]) -> Wait:
        """Who is in the way of a waiting claim: the holders, or the next in line if only that is."""
        ahead = [entry for entry in self.entries if self._blocks(entry, waiting)]
        holders = [entry for entry in ahead if entry.held]
        nearest = sorted(ahead, key=lambda entry: entry.party.age)[:1]
        return Wait(waiting, [self.node(entry, above) for entry in holders or nearest])

    def _blocks(self, one: Entry, waiting: Entry) -> bool:
        if one is waiting:
            return False
        if waiting.limit:
            return one.held and (one.claim.kind, one.claim.name) == (waiting.claim.kind, waiting.claim.name)
        if not conflict(one.claim, waiting.claim):
            return False
        if one.held:
            return True
        if one.claim.name == waiting.claim.name:
            return one.position < waiting.position
        return one.party.age > waiting.party.age


def _entries(info: LockInfo) -> Iterator[Entry]:
    places = [0] * len(info.holders) + list(range(1, len(info.waiters) + 1))
    for party, position in zip((*info.holders, *info.waiters), places, strict=True):
        claim = Claim(party.claim, "", party.owner, info.kind, info.name, party.mode, party.subtree, info.limit)
        yield Entry(party, claim, info.limit, position)


def roots(nodes: Iterable[Node]) -> list[Entry]:
    """The holders at the ends of all chains: nobody is in their way, so everything waits for them."""
    found: dict[str, Entry] = {}
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node.entry.held and not node.waits and not node.seen_above:
            found[node.entry.party.claim] = node.entry
        stack += [blocker for wait in node.waits for blocker in wait.blockers]
    return list(found.values())


def state_of(party: Party) -> str:
    """What this machine knows of the process: gone or stopped. Nothing, if it runs or is elsewhere."""
    if party.host != socket.gethostname() or party.pid <= 0:
        return ""
    found = processes.find(party.pid)
    if not processes.is_alive(party.pid):
        return f"no process {party.pid} runs here any more: it lets go when its ttl is over"
    stopped = found is not None and found.state in "Tt"
    return f"process {party.pid} is stopped: it loses this when its ttl is over" if stopped else ""
