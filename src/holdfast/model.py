"""The nouns that every layer shares: claims and what becomes of them, and what people see."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

MAX_TOKEN = 2**53 - 1
HIGHEST_RAISE = MAX_TOKEN - 2**40
"""Tokens cannot be raised further than this: enough are left for a million grants per second for twelve days."""

Mode = Literal["exclusive", "shared"]
EventType = Literal["granted", "queued", "released", "expired", "broken", "deadlock", "changed"]
"""`changed` is a cell's; a lock's events are the other six."""


@dataclass(slots=True, unsafe_hash=True)
class Claim:
    """One request for a lock, told apart from every other by an id chosen before it is sent.

    Nobody changes one. It is not frozen, because making a frozen one takes ten times as long.
    """

    id: str
    session: str
    owner: str
    kind: str
    name: str
    mode: Mode = "exclusive"
    subtree: bool = False
    limit: int = 0
    """How many permits there are; 0 where the kind is not counted."""
    waits: bool = True
    """Whether it takes a place in line when it cannot be granted at once."""
    reentrant: bool = False
    max_hold: float | None = None
    note: str = ""
    thread: str = ""


@dataclass(slots=True, unsafe_hash=True)
class Granted:
    """The claim holds the lock. Not frozen, as a claim is not."""

    token: int
    slot: int | None = None
    hold_left: float | None = None
    """What was left of `max_hold` when the engine answered."""


@dataclass(frozen=True, slots=True)
class Place:
    """The claim waits in line: `position` 1 is next."""

    position: int
    blocker: Party | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The claim could not be granted at once and does not wait."""

    blocker: Party | None = None


@dataclass(frozen=True, slots=True)
class Gone:
    """The claim is not there: withdrawn, lost with its session, broken or handed over."""

    reason: str


def who(app: str, host: str, details: str, owner: str) -> str:
    """A client in a few words. One of another language may have said neither where it runs nor what it is."""
    return f"{app or 'python'}@{host} ({details})" if host else f"{app or 'a client'} (owner {owner})"


@dataclass(frozen=True, slots=True)
class Party:
    """One who holds or waits, as people need to see it."""

    claim: str
    owner: str
    app: str
    host: str
    pid: int
    thread: str
    note: str
    since: float
    """Seconds since the epoch, by the engine's clock."""
    age: float
    """For how many seconds it has been holding or waiting."""
    mode: Mode
    subtree: bool = False
    token: int | None = None
    slot: int | None = None
    name: str = ""

    @property
    def who(self) -> str:
        """`billing@web-3 (pid 812)`; clients that do not say where they run are told apart by their owners."""
        return who(self.app, self.host, f"pid {self.pid}", self.owner)

    def brief(self) -> str:
        """Who it is, in a few words: `billing@web-3 (pid 812) for 12 s`."""
        return f"{self.who} for {self.age:.3g} s"


@dataclass(frozen=True, slots=True)
class Link:
    """One owner in a deadlock: what it holds (or stands in line for), and what it waits for."""

    owner: str
    app: str
    host: str
    pid: int
    thread: str
    holds: str
    waits_for: str

    def __str__(self) -> str:
        """Who, where, what, in one clause."""
        shown = who(self.app, self.host, f"pid {self.pid}, {self.thread or 'owner ' + self.owner}", self.owner)
        return f"{shown} has {self.holds!r} and waits for {self.waits_for!r}"


@dataclass(frozen=True, slots=True)
class LockInfo:
    """A lock in use: who holds it and who waits, in order."""

    kind: str
    name: str
    holders: tuple[Party, ...] = ()
    waiters: tuple[Party, ...] = ()
    limit: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class LockEvent:
    """Something that happened to a lock."""

    type: EventType
    kind: str
    name: str
    owner: str
    claim: str
    at: float
    token: int | None = None
    mode: Mode = "exclusive"
    detail: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads an election, and the value it stands for."""

    name: str
    value: str
    token: int
    party: Party


@dataclass(frozen=True, slots=True)
class Epoch:
    """Who shares the keys of a partition, until somebody comes or goes.

    Its token is larger than that of every earlier epoch: the fence of what the keys stand for goes by it.
    """

    token: int
    members: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Guarantees:
    """What an engine promises, as data that code can require."""

    consensus: bool
    durable: bool
    leased: bool
    fair: bool
    notified: bool
    deadlock_detection: bool
    fencing: Literal["strict", "clock"]
    clock: Literal["monotonic", "wall"]
    modes: frozenset[str] = field(default_factory=frozenset)
    events: frozenset[str] = field(default_factory=frozenset)
    cells: bool = True
    """Whether it keeps cells, and with them what is made of them: latch, barrier, once, partition, log."""
    recorded: bool = True
    """Whether claims are on record by name: who holds in another client, `list()`, `leader()`, `break_lock()`."""
    hand_over: bool = True
    """Whether a grant can be handed over to another client and adopted there."""
    lost_node: str = ""
    """What happens when a node is lost, in a sentence."""
    summary: str = ""

    FLAGS = (
        "consensus", "durable", "leased", "fair", "notified", "deadlock_detection", "cells", "recorded", "hand_over",
        "strict_fencing",
    )  # fmt: skip

    def has(self, flag: str) -> bool:
        """Whether the guarantee that `require=` names so is given."""
        if flag == "strict_fencing":
            return self.fencing == "strict"
        return bool(getattr(self, flag))

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        return {**asdict(self), "modes": sorted(self.modes), "events": sorted(self.events)}
