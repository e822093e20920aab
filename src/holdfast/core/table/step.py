"""One step of the lock table under way: the time it happens at, and what it has decided so far."""

from __future__ import annotations

from collections.abc import Generator
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar

from holdfast.core import names
from holdfast.core.table import questions as ask
from holdfast.core.table.changes import Change, PutCounter, PutLetter, PutRow
from holdfast.core.table.commands import GRANTED, LETTER, Notice, PassOn, PassOnBelow
from holdfast.core.table.rows import Letter, Row, Session
from holdfast.errors import EngineFailure
from holdfast.model import MAX_TOKEN, EventType, LockEvent

T = TypeVar("T")
Asking = Generator[ask.Question, Any, T]
"""A part of a step: asks questions, is sent the answers, returns a T."""

LAST_NEW = MAX_TOKEN - 2**32
"""New claims and cells get no numbers above this. The rest is for claims in the queue, so that a
release cannot fail."""

MOST_LETTERS = 10_000
"""A watch that has not fetched this many events gets no more: it is told that it fell behind."""


COST_OF_A_LETTER = 3
"""What an event costs per watch that hears of it, in the unit of a question."""


class Meter(Protocol):
    """What a store says of its answers."""

    looked_at: int
    """How many rows it has looked at to answer questions."""
    whole_lines: bool
    """Whether its answer to `Line` leaves nothing out, so that it does not depend on `before`."""


class Uncounted:
    """A store that does not count."""

    looked_at = 0

    def __init__(self, whole_lines: bool = False) -> None:
        self.whole_lines = whole_lines


UNCOUNTED, WHOLE_LINES = Uncounted(), Uncounted(whole_lines=True)


class Bounds(NamedTuple):
    """How much one step may do. What a step leaves over is in `Step.rest`, for later steps."""

    work: float = inf
    """Claims that it grants or removes for others than its asker; four events for watches count like one claim."""
    names: int | None = None
    """Names under a subtree that it looks at, to pass locks on. None: all."""
    search: int = 20_000
    """Claims that a search for a deadlock looks at. A claim that would need more is refused."""
    looks: float = inf
    """Rows that it looks at to pass locks on, dead ones for the most part."""
    scan: float = 25_000
    """Rows that a search for a deadlock looks at to find those claims; four under a subtree count like one."""


UNBOUNDED = Bounds()


class Step:
    """What one command may use and has to leave behind."""

    __slots__ = (
        "_meter", "_most", "bounds", "buckets", "changes", "cost", "last", "left", "notices", "now", "rest", "wall",
        "watched",
    )  # fmt: skip

    def __init__(
        self, now: float, wall: float, buckets: int, bounds: Bounds = UNBOUNDED, meter: Meter = UNCOUNTED
    ) -> None:
        self.now, self.wall, self.buckets, self.bounds = now, wall, buckets, bounds
        self._meter, self._most = meter, meter.looked_at + bounds.looks
        self.changes: list[Change] = []
        self.notices: list[Notice] = []
        self.rest: list[PassOn | PassOnBelow] = []
        """Commands that finish what the bounds did not allow in this step."""
        self.left = bounds.work
        """How much of its work is left."""
        self.cost = 0
        """What it did beside its questions, in the unit of a question."""
        self.last: dict[int, int] = {}
        self.watched = False

    @property
    def looked_at(self) -> int:
        """How many rows the store has looked at, as far as it counts them."""
        return self._meter.looked_at

    @property
    def whole_lines(self) -> bool:
        """Whether the answer to `Line` is the same for every claim of a line."""
        return self._meter.whole_lines

    @property
    def is_over(self) -> bool:
        """Whether its bounds are reached: the rest is for later steps."""
        return self.left <= 0 or self._meter.looked_at >= self._most

    def bucket(self, name: str) -> int:
        """The counter that serves `name`."""
        return names.bucket(name) if self.buckets > 1 else 0

    def alive(self, session: Session | None) -> bool:
        """Whether the session has not run out. It is this clock alone that decides."""
        return session is not None and session.expires_at > self.now

    def check_numbers(self, bucket: int) -> None:
        """Refuse a step that needs a new number if there is none. Called before the step changes anything."""
        if self.last[bucket] >= LAST_NEW:
            raise EngineFailure("the lock table", "every token under 2^53 has been given out", "not done")

    def number(self, bucket: int) -> int:
        """The next number of a counter that was read in this step."""
        number = self.last[bucket] + 1
        assert number <= MAX_TOKEN, "it was checked that there is one"
        self.last[bucket] = number
        self.changes.append(PutCounter(bucket, number))
        return number

    def read_counter(self, bucket: int) -> Asking[int]:
        """The last number of a counter that may not have been read yet."""
        if bucket not in self.last:
            self.last[bucket] = yield ask.Counter(bucket)
        return self.last[bucket]

    def grant(self, row: Row, token: int, slot: int | None = None) -> Row:
        """Turn a claim in line into a grant, by somebody else's request: its session is told."""
        held = row.claim.max_hold
        granted = row._replace(
            token=token, slot=slot, since=self.now, dies_at=None if held is None else self.now + held
        )
        self.changes.append(PutRow(granted))
        self.notices.append(Notice(row.claim.session, row.claim.id, GRANTED))
        self.left -= 1
        return granted

    def tell(self, kind: EventType, row: Row, detail: str = "") -> Asking[None]:
        """Write an event to those who watch; costs nothing while nobody does."""
        if self.watched:
            claim = row.claim
            yield from self.post(
                LockEvent(
                    kind,
                    claim.kind,
                    claim.name,
                    claim.owner,
                    claim.id,
                    self.wall,
                    row.token,
                    claim.mode,
                    detail,
                )
            )

    def post(self, event: LockEvent) -> Asking[None]:
        """Put an event into the mailbox of every watch that wants it."""
        watchers: tuple[ask.WatcherAnswer, ...] = yield ask.Watchers(event.kind, event.name)
        self.left -= len(watchers) / 4
        self.cost += COST_OF_A_LETTER * len(watchers)
        for watch, last, pending in watchers:
            if pending <= MOST_LETTERS:
                self.changes.append(PutLetter(Letter(watch.session, watch.id, last + 1, event)))
                self.notices.append(Notice(watch.session, watch.id, LETTER))
