"""How a line looks in ZooKeeper: where its nodes are, what their names say, and who goes before whom.

`/holdfast/1/<namespace>/claims/<kind>/<name>/x.<claim id>.<sequence number>`: the letters say
what is claimed (x to write, s to read, p4 one of four permits; a t after it: it does not wait).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote, unquote

from holdfast.model import Claim

LAYOUT = 1
WRAP = 2**32


class Layout:
    """The paths of one namespace."""

    def __init__(self, chroot: str, namespace: str) -> None:
        self.namespace = namespace
        self.root = f"{chroot}/holdfast/{LAYOUT}/{namespace}"
        self.base, self.sessions, self.notes = f"{self.root}/base", f"{self.root}/sessions", f"{self.root}/notes"
        self.claims, self.permits, self.cells = f"{self.root}/claims", f"{self.root}/permits", f"{self.root}/cells"
        self._start = len(namespace) + 1

    def _under(self, folder: str, kind: str, name: str) -> str:
        return f"{folder}/{kind[self._start :]}/{quote(name, safe='')}"

    def line(self, kind: str, name: str) -> str:
        """Where the claims on a name stand."""
        return self._under(self.claims, kind, name)

    def slots(self, kind: str, name: str) -> str:
        """Where the permits of a semaphore are that somebody has."""
        return self._under(self.permits, kind, name)

    def cell(self, kind: str, name: str) -> str:
        return self._under(self.cells, kind, name)

    def session(self, session: str) -> str:
        """Written with every heartbeat."""
        return f"{self.sessions}/{session}"

    def note(self, session: str) -> str:
        """Where others leave word for a session."""
        return f"{self.notes}/{session}"

    def kind(self, short: str) -> str:
        """A kind with its namespace."""
        return f"{self.namespace}.{short}"


def unquoted(segment: str) -> str:
    """The name that a node stands for."""
    return unquote(segment)


def letters(claim: Claim) -> str:
    """What is claimed, as its node's name says it."""
    what = f"p{claim.limit}" if claim.limit else "x" if claim.mode == "exclusive" else "s"
    return what if claim.waits else f"{what}t"


def prefix(claim: Claim) -> str:
    """The node's name, up to the sequence number that the server adds."""
    return f"{letters(claim)}.{claim.id}."


class Stand(NamedTuple):
    """One claim in line, as its node's name tells it."""

    node: str
    claim: str
    exclusive: bool
    limit: int
    waits: bool
    number: int

    @property
    def session(self) -> str:
        """Whose it is: a claim's id starts with its session's."""
        return self.claim.rpartition("-")[0]


def read(node: str) -> Stand | None:
    """What a node's name says; None if it is not one of ours."""
    what, _, rest = node.partition(".")
    claim, _, number = rest.partition(".")
    waits = not what.endswith("t")
    kind = what.removesuffix("t")
    try:
        limit = int(kind[1:]) if kind.startswith("p") else 0
        return Stand(node, claim, kind != "s", limit, waits, int(number))
    except ValueError:
        return None


def in_order(nodes: Iterable[str]) -> list[Stand]:
    """The claims in the order of their arrival.

    The server's counter is an int32 that goes on from its highest value with its lowest. Those who
    stand in line at one moment are never half of its range apart, which tells who came first.
    """
    stands = [stand for stand in map(read, nodes) if stand is not None]
    if not stands:
        return stands
    low = min(stand.number for stand in stands)
    if max(stand.number for stand in stands) - low >= WRAP // 2:
        return sorted(stands, key=lambda stand: stand.number % WRAP)
    return sorted(stands, key=lambda stand: stand.number)


class Position(NamedTuple):
    """How one claim stands in line."""

    held: bool
    place: int
    """1 is next; 0 if it holds."""
    blocker: str | None
    """The node whose end it waits for."""
    first: bool = False
    """Whether it is the first that has no permit: it watches the permits, the others those before them."""


def position(stands: list[Stand], node: str) -> Position | None:
    """How the claim of this node stands; None if it is not in line."""
    index = next((index for index, stand in enumerate(stands) if stand.node == node), None)
    if index is None:
        return None
    own, ahead = stands[index], stands[:index]
    if own.limit:
        # Claims with another limit are looked at by themselves: they hold, and ours is refused, or they go.
        held = index < own.limit
        first = index == own.limit
        return Position(held, max(0, index - own.limit + 1), None if held or first else ahead[-1].node, first)
    holding = count_holding(stands)
    if index < holding:
        return Position(True, 0, None)
    # A reader waits for the nearest writer; whoever else is before it does not matter.
    before = ahead[-1] if own.exclusive else next(stand for stand in reversed(ahead) if stand.exclusive)
    return Position(False, index - holding + 1, before.node)


def count_holding(stands: list[Stand]) -> int:
    """How many at the head of a line of readers and writers hold: one writer, or the leading run of readers."""
    if not stands:
        return 0
    if stands[0].exclusive:
        return 1
    return next((index for index, stand in enumerate(stands) if stand.exclusive), len(stands))
