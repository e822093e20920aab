"""What an engine is: a factory of verbs, and a statement of what it promises.

A new engine is one file with a class that has these attributes and methods, named in the
entry-point group `holdfast.engines` under its scheme. Everything else (deadlines, sessions,
queues on the client's side, cancellation, both APIs) is above it and stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from holdfast.core.table.commands import (
    BreakUnderWay,
    CellValue,
    Deadlocked,
    Done,
    Letters,
    Mismatch,
    Notice,
    Opened,
    Renewed,
    SessionOver,
    TooEntangled,
    WrongLimit,
)
from holdfast.core.table.rows import Session
from holdfast.core.urls import Url
from holdfast.model import Claim, Gone, Granted, Guarantees, LockInfo, Party, Place, Refused
from holdfast.runtime.io import Io, Signal

if TYPE_CHECKING:
    import asyncio

Deliver = Callable[[Notice], None]
"""Takes a notice for one of the client's own sessions, in any thread."""


def nobody(notice: Notice) -> None:
    """Takes notices before there is a client: there is no session yet that they could be for."""


Standing = Granted | Place | Gone | SessionOver
"""How a claim stands."""
Entered = Standing | Refused | Deadlocked | WrongLimit | TooEntangled
"""What becomes of a new claim."""


class Verbs(Protocol):
    """What an engine does, through one Io. Each verb gives up at `until`, on the caller's clock.

    A kind comes with its namespace (`holdfast.lock`); where a verb takes all kinds of a
    namespace, the kind ends in a dot (`holdfast.`).
    """

    io: Io
    bell: Signal
    """Where the keeper waits: rung by whoever wants it to look up, and by what the engine sends."""

    async def open_session(self, session: Session, until: float) -> Opened | SessionOver: ...

    async def renew(self, session: str, until: float) -> Renewed | SessionOver: ...

    async def sweep(self, until: float) -> Done: ...

    async def close_session(self, session: str, until: float) -> Done: ...

    async def enter(self, claim: Claim, until: float) -> Entered: ...

    async def look(self, claim: Claim, until: float) -> Standing | Deadlocked:
        """How a claim stands. An engine that sees a deadlock only after a while says so here, and drops the claim."""

    async def release(self, claim: Claim, until: float) -> Done | Gone: ...

    async def leave(self, claim: Claim, unanswered: bool, until: float) -> Done: ...

    async def hand_over(self, claim: Claim, ticket: str, until: float) -> Done | Gone: ...

    async def adopt(
        self, claim: Claim, source: str, ticket: str, until: float
    ) -> Granted | Gone | SessionOver | Deadlocked | TooEntangled: ...

    async def break_lock(self, kind: str, name: str, force: bool, until: float) -> BreakUnderWay: ...

    async def inspect(self, kind: str, name: str, until: float) -> LockInfo: ...

    async def list(self, prefix: str, kind: str, until: float) -> tuple[LockInfo, ...]: ...

    async def cell_get(self, kind: str, name: str, until: float) -> CellValue: ...

    async def cell_set(
        self, kind: str, name: str, value: bytes | None, version: int | None, keep: float | None, until: float
    ) -> CellValue | Mismatch: ...

    async def watch(self, session: str, id_: str, kind: str, prefix: str, until: float) -> Done | SessionOver: ...

    async def cell_watch(self, session: str, id_: str, kind: str, name: str, until: float) -> Done | SessionOver: ...

    async def fetch(self, session: str, id_: str, after: int, until: float) -> Letters | SessionOver: ...

    async def unwatch(self, session: str, id_: str, until: float) -> Done: ...

    async def raise_tokens(self, above: int, until: float) -> Done: ...


LONGEST_CALL = 5.0
"""Seconds that a request may go unanswered, however long the ttl."""


@runtime_checkable
class PatientEngine(Protocol):
    """An engine whose servers may all be silent for a while: until one of them has taken over."""

    patience: float
    """Seconds that a request may go unanswered, however short the ttl; 0: as on every engine."""


@runtime_checkable
class ListingVerbs(Protocol):
    """Verbs that list what a session has. Where there are none, every grant is asked for by `look`."""

    async def own_claims(self, session: str, until: float) -> list[tuple[Claim, int | None]] | SessionOver:
        """Every claim of the session, with its token, or None while it waits; as far as `leave` needs it.

        Those may be left out that the engine's own client side knows: they are asked for by `look`.
        """


@runtime_checkable
class HolderVerbs(Protocol):
    """Verbs that name the holders of a lock for less than `inspect` takes, which also names each waiter."""

    async def holders(self, kind: str, name: str, until: float) -> tuple[Party, ...]: ...


@runtime_checkable
class ConfirmingVerbs(Protocol):
    """Verbs of an engine that can come back with an older state, and whose heartbeat does not compare each grant."""

    async def confirm(self, claim: Claim, until: float) -> Standing:
        """How a claim stands that is held, as the engine has it now."""


@runtime_checkable
class QuietEngine(Protocol):
    """An engine whose state can be put back to an earlier copy while no connection is cut."""

    checks_every_beat: ClassVar[bool]
    """Whether grants are compared after every heartbeat."""


@runtime_checkable
class NarrowEngine(Protocol):
    """An engine that cannot do what its nearest relative can: cells, hand-overs, watching."""

    instead: ClassVar[str]
    """That relative, as a URL."""


class Engine(Protocol):
    """One client's way to where the lock state lives."""

    schemes: ClassVar[tuple[str, ...]]
    options: ClassVar[frozenset[str]]
    """The URL options that it knows."""
    guarantees: Guarantees
    address: str
    """The URL without its secrets, for messages."""
    shortest_ttl: float
    deliver: Deliver
    """Set by the client: where notices for its sessions go."""

    def __init__(self, url: Url, namespace: str) -> None: ...

    def blocking(self) -> Verbs:
        """Verbs for blocking callers. Called twice: the keeper has a connection of its own."""

    def asyncio(self, loop: asyncio.AbstractEventLoop) -> Verbs:
        """Verbs for tasks of this loop."""

    def abandon(self) -> None:
        """Forget every connection without a word on the wire: this process is a fork."""

    def close(self) -> None:
        """Close every connection."""
