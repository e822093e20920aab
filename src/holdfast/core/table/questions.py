"""What the lock table has to know, asked one question at a time.

A store answers from dictionaries or by SQL. Every answer counts only what is *alive* at the
step's `now`: a row lives while its session does (`expires_at > now`) and until its `dies_at`.
The first question of a step holds all that the uncontended case needs.

Several rows come by order, then id; names, sessions and watches by their own text; what has died,
by its time of death first. So every store gives the same table, token for token.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from holdfast.core.table.rows import Cell, Letter, Row, Session, Tombstone, Watch
from holdfast.model import Claim


@dataclass(slots=True)
class Scene:
    """All that an uncontended enter needs. Answer: `SceneAnswer`."""

    claim: Claim
    bucket: int


class SceneAnswer(NamedTuple):
    """Read by its order: a store may give a plain tuple, the cheapest to make."""

    session: Session | None
    row: Row | None
    """The claim itself, if this is a repeat; also when it is dead."""
    tombstone: Tombstone | None
    last: int
    """The last number that the bucket gave out."""
    blocker: Row | None
    """The first live claim that conflicts with a newcomer (see `Blocker`); for permits, the first live one in line.

    Before those, a permit below a subtree claim, or a subtree claim above a permit: they do not go together. A store
    whose kinds are all chosen by Holdfast need not look, because none of them has both.
    """
    permits: Holders
    """For permits: the live holders."""
    watched: bool
    """Whether anybody watches anything."""


@dataclass(slots=True)
class Departure:
    """All that an uncontended release needs. Answer: `DepartureAnswer`."""

    claim: Claim
    bucket: int
    stays: bool = False
    """It does not go: nobody needs to know who could go on."""
    most: int | None = None
    """How many names under a subtree are of interest, at least."""


class DepartureAnswer(NamedTuple):
    """Read by its order, like `SceneAnswer`."""

    session: Session | None
    row: Row | None
    """The claim itself, dead or alive."""
    tombstone: Tombstone | None
    last: int
    waiting: tuple[str, ...]
    """Names of lines with somebody in them that may go on once this claim is gone."""
    watched: bool


class Blocker(NamedTuple):
    """The first live claim that conflicts with this one and came before `order`. Answer: `Row | None`.

    On its own name if there is one, across the path otherwise.
    """

    claim: Claim
    order: int


class NextWaiting(NamedTuple):
    """The first live claim in line on exactly this name after `order`. Answer: `Row | None`."""

    kind: str
    name: str
    after: int
    plain: bool = False
    """Those may be left out that cover a subtree."""


class Affected(NamedTuple):
    """Names of lines that may go on once a claim like this is gone. Answer: `tuple[str, ...]`."""

    claim: Claim
    most: int | None = None
    """How many names under a subtree are of interest, at least."""


class AffectedBelow(NamedTuple):
    """Names under a subtree claim on which claims wait that came after a number. Answer: `BelowAnswer`."""

    claim: Claim
    after: int
    most: int


class BelowAnswer(NamedTuple):
    names: tuple[str, ...]
    next: int | None
    """After which number more of them come; None if these are all."""


class Permits(NamedTuple):
    """The live holders of a semaphore's permits. Answer: `Holders`."""

    kind: str
    name: str


class Taken(NamedTuple):
    """Which permits are taken: all that matters of those who have them, however many these are."""

    first: Row | None
    """The first of the holders."""
    slots: int
    """A bit for each permit that is taken."""

    @classmethod
    def by(cls, rows: tuple[Row, ...]) -> Taken:
        """What these have."""
        taken = bytearray(max((row.slot or 0 for row in rows), default=0) // 8 + 1)
        for row in rows:
            if row.slot is not None:
                taken[row.slot // 8] |= 1 << row.slot % 8
        return cls(rows[0] if rows else None, int.from_bytes(taken, "little"))


Holders = Taken | tuple[Row, ...]
"""Those who have permits; a store may give them one by one."""


class Held(NamedTuple):
    """A live grant of the claim's owner on exactly its name that covers it. Answer: `Row | None`.

    It covers the claim if it is exclusive or both are shared, and has the subtree if the claim wants it.
    """

    claim: Claim


class Position(NamedTuple):
    """How many live claims stand in line on this name before `order`. Answer: `int`."""

    kind: str
    name: str
    order: int


class Busy(NamedTuple):
    """Whether the owner has a claim other than this one. Answer: `bool`."""

    owner: str
    claim_id: str


class Line(NamedTuple):
    """Every live claim that can conflict with one like this, and those of its own name.

    Answer: `tuple[Row, ...] | None`; None may stand for more than `most`.

    A store may leave out what adds nothing to the search for a cycle:

    - What is held by an owner that waits for nothing: it is released some time. All that `home` has is needed, because
      that owner is about to wait.
    - Waiting claims on this name, which cover no subtree, of owners that wait for nothing else. A later exclusive claim
      waits for all that they wait for. A shared claim waits for the earlier exclusive ones; the last of these before
      `before` is needed.
    - The same under a subtree claim that is exclusive.
    """

    claim: Claim
    home: str = ""
    before: float = inf
    most: int | None = None
    looks: float = inf
    """How many rows it may look at; None may be the answer where it would take more."""
    again: bool = False
    """It was asked with another `before`: only the last exclusive claim before this one is needed."""


class WaitingOf(NamedTuple):
    """Every live claim in line of these owners.

    Answer: `tuple[Row, ...] | None`; None may stand for more than `most`.
    """

    owners: tuple[str, ...]
    most: int | None = None


class Sessions(NamedTuple):
    """These sessions, dead or alive, as far as they are known. Answer: `dict[str, Session]`."""

    ids: tuple[str, ...]


class Beat(NamedTuple):
    """What a heartbeat needs. Answer: `BeatAnswer`.

    Of the tombstones, those with ids after `after` matter, the first `most + 1` by their ids, and no withdrawn ones.
    """

    session: str
    after: str = ""
    most: int | None = None


class BeatAnswer(NamedTuple):
    session: Session | None
    tombstones: tuple[Tombstone, ...]


class SessionRows(NamedTuple):
    """Claims of a session, dead or alive, at most `limit`. Answer: `tuple[Row, ...]`."""

    session: str
    limit: int
    after: str | None = None
    """Only those with ids after this one, the first by their ids. None: any."""


class Dead(NamedTuple):
    """What has died and is still here. Answer: `DeadAnswer`."""

    limit: int


class DeadAnswer(NamedTuple):
    sessions: tuple[Session, ...]
    rows: tuple[Row, ...]
    """Rows past their `dies_at`, whatever their session."""
    cells: tuple[Cell, ...]


class NextDeath(NamedTuple):
    """When the next session or claim can die. Answer: `float | None`."""


class OnName(NamedTuple):
    """Every live claim on exactly this name, by order. Answer: `tuple[Row, ...]`."""

    kind: str
    name: str
    holding: bool = False
    """Those in line may be left out."""
    order: int | None = None
    """Only those of this order are of interest."""
    after: tuple[int, str] = (-1, "")
    """Only those after this order and id are of interest, the first `most` of them."""
    most: int | None = None


class Under(NamedTuple):
    """Every live claim on names that a prefix shows, by name and order. Answer: `tuple[Row, ...]`."""

    prefix: str
    kind: str
    limit: int


class RowById(NamedTuple):
    """A claim and its session. Answer: `tuple[Row, Session] | None`, live ones only."""

    claim_id: str


class CellNow(NamedTuple):
    """A cell, unless it has expired, and the bucket's counter. Answer: `CellAnswer`."""

    kind: str
    name: str
    bucket: int


class CellAnswer(NamedTuple):
    cell: Cell | None
    last: int
    watched: bool


class Counter(NamedTuple):
    """The last number that a bucket gave out. Answer: `int`."""

    bucket: int


class Watched(NamedTuple):
    """Whether anybody watches anything. Answer: `bool`."""


class Watchers(NamedTuple):
    """Watches of live sessions that want to hear of this name, each with how far its letters go.

    Answer: `tuple[WatcherAnswer, ...]`.
    """

    kind: str
    name: str


class WatcherAnswer(NamedTuple):
    watch: Watch
    last: int
    pending: int


class Mailbox(NamedTuple):
    """The letters of a watch after a number. Answer: `MailboxAnswer | None`, None if there is no such watch."""

    session: str
    id: str
    after: int


class MailboxAnswer(NamedTuple):
    watch: Watch
    letters: tuple[Letter, ...]
    """In the order of their numbers."""
    first: int
    """The lowest number that is still kept, fetched or not; 0 if there is none."""


Question = (
    Scene | Departure | Blocker | NextWaiting | Affected | Permits | Held | Position | Busy | Line | WaitingOf
    | Sessions | Beat | SessionRows | Dead | NextDeath | OnName | Under | RowById | CellNow | Counter
    | Watched | Watchers | Mailbox | AffectedBelow
)  # fmt: skip
