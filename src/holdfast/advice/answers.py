"""What can be recommended: a name, a reason, and a program of ten lines at most."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

Strength = Literal["none", "any", "fenced", "strong"]
"""What the engine has to be: nothing at all, any one, any one whose token is checked, or one that rests on a quorum."""


@dataclass(frozen=True)
class Advice:
    """One recommendation."""

    name: str
    title: str
    reason: str
    strength: Strength = "any"

    def program(self, url: str) -> str:
        """A program that does it, at this URL."""
        text = files("holdfast.advice").joinpath("programs", f"{self.name}.txt").read_text()
        return text.replace("URL", repr(url).replace("'", '"'))


NO_LOCK = Advice(
    "no_lock",
    "No lock: let both run",
    "Two runs at once do no harm and repeating is safe, so a lock would only add something that can fail. "
    "Make the work idempotent, as this program does, and let whoever comes do it.",
    "none",
)
LOCK = Advice(
    "lock",
    "A lock",
    "Only one should run, and a rare second run is no more than a waste: a lock with a lease is enough. "
    "It is released by itself if its holder dies.",
)
FENCED_LOCK = Advice(
    "fenced_lock",
    "A lock, and a fence in the store",
    "A lock alone cannot stop a holder that was paused for longer than its lease. Your store can check a token as it "
    "writes, so the late write is refused there, whatever the lock's engine is.",
    "fenced",
)
STRONG_LOCK = Advice(
    "strong_lock",
    "A lock on an engine with a quorum, checked before every step",
    "Nothing at the other end can refuse a late write, so two can still act within a pause of the first: no lock can "
    "rule that out. An engine with a quorum, short steps, and a look at the grant before each keep that rare. If you "
    "can, put something in between that checks the token.",
    "strong",
)
OPTIMISTIC = Advice(
    "optimistic",
    "No lock: a version column",
    "The rows' own database can refuse a write that was made for an older version. Read, change, write if nobody was "
    "faster, else again. If most writers meet, lock the row instead: locks.row_lock().",
    "none",
)
CELL = Advice(
    "cell",
    "No lock: a cell",
    "One small value needs compare-and-swap, not a lock: nobody waits for anybody, and nobody can die holding it.",
)
ONCE = Advice(
    "once",
    "No lock to hold: once",
    "One recorded result for all who ask, also for those who ask again after a crash. The work itself can start again "
    "if a worker is lost half-way: let whoever does it know it by a key that is the same in every try.",
)
LOG = Advice(
    "log",
    "Event sourcing: append to a log with an expected length",
    "What happened is kept, not what follows from it, and whoever decides says how much it had seen: if somebody was "
    "faster, it reads on and decides again. This log is small; keep a large one in a database, by the same rule.",
)
PARTITION = Advice(
    "partition",
    "The actor model: one owner for each thing",
    "Give each thing to one process, which does all its work in turn: no locks between the owners, and the state can "
    "stay in memory. Partitions share the things among whoever is alive; the epoch's token fences a late owner.",
    "fenced",
)
DATABASE = Advice(
    "transaction",
    "No lock: one transaction of the database",
    "All that has to change together is in one store that has transactions: it does this better than any lock.",
    "none",
)
LOCK_ALL = Advice(
    "lock_all",
    "Several locks together",
    "All or none, in one order whoever asks, so that two of them never wait for each other.",
)
ELECTION = Advice(
    "election",
    "An election, and its token with every write",
    "One leads and everybody can see who; when it dies, the next one follows. A leader that was paused can come back "
    "late: let what it writes to refuse an older token.",
    "fenced",
)
SEMAPHORE = Advice(
    "semaphore", "A semaphore", "At most so many at once; each holds a permit, and a dead one gives its back."
)

ALL = (
    NO_LOCK, LOCK, FENCED_LOCK, STRONG_LOCK, OPTIMISTIC, CELL, ONCE, LOG, PARTITION, DATABASE, LOCK_ALL, ELECTION,
    SEMAPHORE,
)  # fmt: skip
