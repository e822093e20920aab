"""What can be asked of the lock table, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.table.rows import Session
from holdfast.model import Claim, Granted, Link, LockEvent, LockInfo, Place, Refused
from holdfast.model import Gone as Gone


@dataclass(slots=True)
class Open:
    """Begin a session; a repeat with the same id renews it. `session.expires_at` is set by the table."""

    session: Session


@dataclass(slots=True)
class Renew:
    """The heartbeat: keeps everything that the session holds, and tells it what it holds no longer.

    At most `most` of that, in the order of the claims' ids. The rest is asked for by `after`, the last id in the reply.
    """

    session: str
    after: str = ""
    most: int | None = None


@dataclass(slots=True)
class Close:
    """End a session. Its claims are dead at once and removed in bounded steps."""

    session: str
    limit: int = 256
    """How many claims this step removes at most."""


@dataclass(slots=True)
class Enter:
    """Take the lock or a place in line. Safe to repeat: the claim id says that it is the same request."""

    claim: Claim


@dataclass(slots=True)
class Look:
    """How the claim stands now. Changes nothing."""

    claim: Claim


@dataclass(slots=True)
class OwnClaims:
    """Every claim that the session has, at most `most` of them, in the order of their ids. Changes nothing.

    The rest is asked for by `after`, the last id in the reply.
    """

    session: str
    after: str = ""
    most: int = 1_000


@dataclass(slots=True)
class Release:
    """Give a granted claim back, and pass the lock on."""

    claim: Claim


@dataclass(slots=True)
class Leave:
    """Withdraw a claim, granted or not. `unanswered`: its enter may still be on the way."""

    claim: Claim
    unanswered: bool = False


@dataclass(slots=True)
class HandOver:
    """Let whoever shows the ticket's secret adopt this grant."""

    claim: Claim
    ticket: str


@dataclass(slots=True)
class Adopt:
    """Take over the grant of `source` with a higher token; `claim` is the adopter's own."""

    claim: Claim
    source: str
    ticket: str


@dataclass(slots=True)
class Break:
    """An operator's release of all who hold the name; at once if `force`, otherwise within one ttl.

    At most `most` of the holders in this step. The next step goes on `after` the last one. Tokens above `upto` are not
    broken: they were granted between the steps.
    """

    kind: str
    name: str
    force: bool = False
    most: int | None = None
    after: tuple[int, str] = (-1, "")
    upto: int | None = None


@dataclass(slots=True)
class Inspect:
    """Who holds a lock and who waits for it."""

    kind: str
    name: str


@dataclass(slots=True)
class List:
    """Every lock in use under a prefix, of one kind, or of all kinds that start with a dotted namespace."""

    prefix: str
    kind: str
    limit: int = 1_000_000


@dataclass(slots=True)
class CellGet:
    """Read a cell."""

    kind: str
    name: str


@dataclass(slots=True)
class CellSet:
    """Write a cell, or delete it (`value` None), if its version is still the expected one (None: whatever it is)."""

    kind: str
    name: str
    value: bytes | None
    expected: int | None = None
    keep: float | None = None
    user: str = ""


@dataclass(slots=True)
class Subscribe:
    """Begin to collect events for a watch."""

    session: str
    id: str
    kind: str
    prefix: str


@dataclass(slots=True)
class Unsubscribe:
    """End a watch and drop what it has not fetched."""

    session: str
    id: str


@dataclass(slots=True)
class Fetch:
    """The events of a watch after number `after`; those up to it are forgotten."""

    session: str
    id: str
    after: int


@dataclass(slots=True)
class Sweep:
    """Remove what has died, at most `limit` claims, and pass on what it held."""

    limit: int = 256


@dataclass(slots=True, frozen=True)
class PassOn:
    """Grant what can be granted on a name: the rest of an earlier step (`Step.rest`)."""

    kind: str
    name: str
    counted: bool


@dataclass(slots=True, frozen=True)
class PassOnBelow:
    """The same for the names under a subtree claim that is gone, where claims wait that came after a number."""

    claim: Claim
    after: int = -1


@dataclass(slots=True)
class RaiseTokens:
    """Make every later token larger than `above`."""

    above: int


Command = (
    Open | Renew | Close | Enter | Look | OwnClaims | Release | Leave | HandOver | Adopt | Break | Inspect | List
    | CellGet | CellSet | Subscribe | Unsubscribe | Fetch | Sweep | RaiseTokens
    | PassOn | PassOnBelow
)  # fmt: skip


@dataclass(slots=True)
class Opened:
    """The session lives for `ttl` from now."""

    ttl: float


@dataclass(slots=True)
class Renewed:
    """The session lives for another `ttl`; `gone` names claims that were taken from it, and why."""

    ttl: float
    gone: tuple[tuple[str, str], ...] = ()
    next_death: float | None = None
    """In how many seconds the next session or claim can die."""
    undecided: str = ""
    """Why nothing but what is gone was confirmed, if so: a claim may be held still, or be lost already."""
    more: bool = False
    """Whether more claims were taken than `gone` names."""
    claims: tuple[int, int] | None = None
    """How many claims the session has, and the highest of their tokens, if the engine counts them."""


@dataclass(slots=True)
class SessionOver:
    """There is no such session any more: all that it held is lost."""

    reason: str = ""
    """Why, if the engine knows more than that its time was over."""


OLDER_STATE = "the engine lost data and came back with an older state"
"""Why a session is over that is in that state, but was used after it."""


@dataclass(slots=True)
class Done:
    """It was done; `more` says that another step of the same kind is needed to finish."""

    more: bool = False
    next_death: float | None = None
    removed: int = 0
    """How many claims were cleared away."""


@dataclass(slots=True)
class OwnClaimsPage:
    """Claims of a session, each with its token, or None while it waits; whether there are more."""

    claims: tuple[tuple[Claim, int | None], ...]
    more: bool = False


@dataclass(slots=True)
class Deadlocked:
    """Waiting would close this cycle; the claim was refused."""

    cycle: tuple[Link, ...]


@dataclass(slots=True)
class WrongLimit:
    """The semaphore is in use with another limit; or it is not counted, or in a subtree that is not, where that is 0.

    A claim that is not counted gets the limit of the permits that it does not go with, on its name or in its subtree.
    """

    limit: int


@dataclass(slots=True)
class TooEntangled:
    """Waiting might close a cycle, but to find out takes a look at more than `limit` claims. The claim was refused."""

    limit: int

    @property
    def problem(self) -> str:
        """For people."""
        return f"a search for a deadlock looks at {self.limit} claims at most, and this claim would wait for more"


@dataclass(slots=True)
class BreakUnderWay:
    """The claims that were told to go, and where the next step goes on, if there are more."""

    claims: tuple[str, ...]
    after: tuple[int, str] | None = None
    upto: int | None = None


@dataclass(slots=True)
class CellValue:
    """A cell as it is now; version 0 and no value if there is none."""

    value: bytes | None
    version: int


@dataclass(slots=True)
class Mismatch:
    """The cell was not at the expected version. Nothing was written."""

    current: int


@dataclass(slots=True)
class Letters:
    """Events for a watch, in order, with the number of the last."""

    events: tuple[LockEvent, ...]
    last: int
    overflowed: bool = False
    lost: bool = False
    """Whether the engine has lost events that this watch was given before: it came back with an older state."""


Reply = (
    Opened | Renewed | SessionOver | Done | Granted | Place | Refused | Gone | Deadlocked | WrongLimit | TooEntangled
    | OwnClaimsPage | BreakUnderWay | CellValue | Mismatch | Letters | LockInfo | tuple[LockInfo, ...]
)  # fmt: skip


@dataclass(slots=True)
class Notice:
    """A word to one session, to be sent after the changes are kept: look at this claim, or fetch this watch."""

    session: str
    subject: str
    what: str
    ttl: float = 0.0
    """With SHORTENED: what the session is granted now."""
    since: float = 0.0
    """With SHORTENED: when the request was sent that the engine answered with this, on the client's clock."""


GRANTED, GONE, LETTER = "granted", "gone", "letter"
MISSED = "missed"
"""What an engine says whose notices may have got lost: everybody looks by himself."""
RECONNECTED = "reconnected"
"""What an engine says whose connection was cut and made again: it may have come back with an older state."""
SHORTENED = "shortened"
"""What an engine says that grants a session less than before. No heartbeat has to be answered for that to count."""
