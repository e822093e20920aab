"""What the lock server needs of the place where its table survives.

The table in memory answers; the store remembers. Nothing that a batch brought about is let out, neither
a reply nor a notice nor a look at the new table, before `keep` has returned for that batch.

A heartbeat can be answered at once if nothing else is under way, but its `PutSession` goes to `keep` with the
next batch, in its place among the other changes: that is how a later start tells the sessions that were alive at
the last batch, which get a full ttl, from those whose locks others may have by now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.core.table import Dictionary
from holdfast.core.table.changes import Change
from holdfast.errors import HoldfastError


class StoreRefused(HoldfastError):
    """The store cannot be used as it is: in use elsewhere, too new, or not to be trusted. The server does not start."""

    def __init__(self, address: str, problem: str, advice: str) -> None:
        self.address, self.problem, self.advice = address, problem, advice
        super().__init__(f"{address}: {problem}; {advice}")


class StoreFull(HoldfastError):
    """There was no room. Nothing of the batch was kept: load the table again, and refuse the batch's commands."""

    def __init__(self, address: str, problem: str) -> None:
        self.address, self.problem = address, problem
        super().__init__(f"{address}: {problem}; nothing was written: make room, the server goes on by itself")


class StoreBroken(HoldfastError):
    """Nobody knows what of the batch is on disk, or what will be. Stop at once, and answer none of it."""

    def __init__(self, address: str, problem: str) -> None:
        self.address, self.problem = address, problem
        super().__init__(
            f"{address}: {problem}; the last commands may or may not have been kept: "
            "the server stops, start it again when the disk is well"
        )


class Deposed(HoldfastError):
    """Another server leads by now, or may: answer nobody, and become a follower.

    `past`: it is about an earlier term of this server.
    """

    def __init__(self, address: str, problem: str, *, past: bool = False) -> None:
        self.address, self.problem, self.past = address, problem, past
        super().__init__(f"{address}: {problem}; this server does not lead any more")


@dataclass(frozen=True, slots=True)
class Figures:
    """How the store is doing, for metrics."""

    batches: int = 0
    """How many batches were kept since the start."""
    changes: int = 0
    bytes_written: int = 0
    commit_seconds: float = 0.0
    """What all of them took together, queueing for the disk included."""
    file_bytes: int = 0
    """What the store takes on disk, ballast not counted."""
    log_bytes: int = 0
    """What of that is the log that a start has to replay."""
    short_of_room: bool = False


class Store(Protocol):
    """Where the table survives. One server at a time, one `keep` at a time."""

    address: str
    """For messages: the URL without secrets."""
    shortest_ttl: float
    """No session is granted less, whatever it asks for."""
    patience: float
    """Seconds that a commit may wait for those who were just answered, or half of what the last ones took if less.

    As long as each turn of the loop brings some of them, it waits anyway, for some milliseconds at most.
    """

    def may_answer(self) -> bool:
        """Whether what was kept may be told: not by one whose leadership another may have by now. Cheap."""
        ...

    def load(self) -> Dictionary:
        """The table as of the last batch that was kept; a session that was alive then has a full ttl. Blocking.

        At the start, and again after StoreFull. Raises StoreRefused.
        """
        ...

    def now(self) -> float:
        """The clock of the table, for `apply`. It never goes back, across restarts and reboots too. After `load`."""
        ...

    def keep(self, changes: Sequence[Change], may_block: bool = False) -> Awaitable[None]:
        """Done when the batch is on disk, all of it. An empty one keeps the time.

        `changes` is all that was applied since the call before, in order. StoreFull: none of it was kept.
        StoreBroken: nobody knows. Deposed: another server goes on with what was kept.
        One call at a time. What it needs of the table it takes in the call itself: later the table is ahead of this
        batch. `may_block`: the last ones were quick, and all who are known to be at work wait for it, or they are few:
        there is little or nothing to read meanwhile.
        """
        ...

    def has_room(self) -> bool:
        """Whether new claims, sessions, cells and watches may be written.

        While it is False, send `keep` only what frees room in the end: release, leave, close, sweep, fetch,
        unsubscribe, break, renew. Cheap; it looks by itself whether there is room again.
        """
        ...

    def figures(self) -> Figures:
        """Sizes and counts, for metrics."""
        ...

    def close(self) -> None:
        """Let go of the store. What `keep` returned for is on disk already."""
        ...
