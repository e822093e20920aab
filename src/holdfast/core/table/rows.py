"""What the lock table remembers."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.core.names import matches
from holdfast.model import Claim, LockEvent, Party


class Session(NamedTuple):
    """A client's proof of life. Everything it claims lives as long as it does."""

    id: str
    ttl: float
    expires_at: float
    app: str = ""
    host: str = ""
    pid: int = 0
    digest: str = ""
    """Of the secret by which it speaks, where sessions of strangers share a table: the lock server's."""
    user: str = ""
    """Who has opened it, where the lock server has users: all that it claims counts for that user."""


class Row(NamedTuple):
    """A claim in the table: granted once it has a token, in line until then."""

    claim: Claim
    order: int
    """Arrival. A re-entered or adopted claim keeps the order of the hold that it continues."""
    since: float
    token: int | None = None
    slot: int | None = None
    dies_at: float | None = None
    """When it ends whatever its session does: `max_hold` is over, or it was broken."""
    ticket: str = ""
    """The digest of a hand-over's secret, if one was made."""

    @property
    def id(self) -> str:
        return self.claim.id

    @property
    def exclusive(self) -> bool:
        return self.claim.mode == "exclusive"


class Tombstone(NamedTuple):
    """Why a claim is not there: withdrawn before it arrived, or ended by somebody else. Goes with its session."""

    claim_id: str
    session: str
    reason: str


WITHDRAWN = "it was withdrawn"


class Cell(NamedTuple):
    """A versioned value. Versions come from the token counter, so they grow across a delete."""

    kind: str
    name: str
    value: bytes
    version: int
    keep: float | None = None
    expires_at: float | None = None
    user: str = ""
    """Who wrote it last, where the lock server has users."""


class Watch(NamedTuple):
    """A session's wish to be told what happens under a prefix."""

    session: str
    id: str
    kind: str
    """A kind, or the start of kinds that ends in a dot: all of a namespace."""
    prefix: str
    given: int = 0
    """The highest number of an event that a fetch has returned. A reader that has seen a higher one comes from a later
    state than this table's."""

    @property
    def of_cell(self) -> bool:
        """Whether it is on one cell, and not on all names under a prefix."""
        return self.kind.startswith("cell:")

    def hears(self, kind: str, name: str) -> bool:
        """Whether an event of this kind on this name is for it."""
        if self.kind.endswith("."):
            return kind.startswith(self.kind) and matches(self.prefix, name)
        return kind == self.kind and (name == self.prefix if kind.startswith("cell:") else matches(self.prefix, name))


class Letter(NamedTuple):
    """An event on its way to one watch."""

    session: str
    watch: str
    number: int
    event: LockEvent


def party(row: Row, session: Session | None, now: float, wall: float) -> Party:
    """The claim as people see it."""
    claim, age = row.claim, max(0.0, now - row.since)
    return Party(
        claim=claim.id,
        owner=claim.owner,
        app=session.app if session else "",
        host=session.host if session else "",
        pid=session.pid if session else 0,
        thread=claim.thread,
        note=claim.note,
        since=wall - age,
        age=age,
        mode=claim.mode,
        subtree=claim.subtree,
        token=row.token,
        slot=row.slot,
        name=claim.name,
    )
