"""What the server counts: plain numbers, cheap enough for every command."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from holdfast.core.table.rows import Row

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


class Histogram:
    """How often a value fell under each bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add_all(self, values: Sequence[float]) -> None:
        counts, bounds = self.counts, self.bounds
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self.total += sum(values)


class Tally:
    """Everything that is counted since the start."""

    def __init__(self) -> None:
        self.commands = 0
        self.grants = 0
        self.queued = 0
        self.releases = 0
        self.deadlocks = 0
        self.expiries = 0
        self.broken = 0
        self.refused_batches = 0
        self.connections = 0
        self.logins_refused = 0
        self.errors: Counter[tuple[str, str]] = Counter()
        """By user and by the first word of the error."""
        self.wait_seconds = Histogram(SECONDS)
        self.hold_seconds = Histogram(SECONDS)
        self.commit_seconds = Histogram(SECONDS)
        self.commit_changes = Histogram(SIZES)

    def plain(self, commands: int, held: Sequence[float]) -> None:
        """So many grants and releases; for how long each of those was held that were given back."""
        self.commands += commands
        self.grants += commands - len(held)
        self.releases += len(held)
        self.hold_seconds.add_all(held)

    def granted_from_line(self, since: float | None, now: float) -> None:
        self.grants += 1
        if since is not None:
            self.wait_seconds.add(now - since)

    def expired(self, row: Row) -> None:
        if row.token is not None:
            self.expiries += 1

    def commit(self, seconds: float, changes: int) -> None:
        self.commit_seconds.add(seconds)
        self.commit_changes.add(changes)
