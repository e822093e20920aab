"""What a request says of its claim beside id and name: the same words come with nearly every request."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.model import Claim, Mode
from holdfast.server import grammar
from holdfast.server.frames import Frame
from holdfast.server.limits import Limits
from holdfast.server.wire_error import WireError

CLAIM: grammar.Options = {
    b"KIND": ("kind", grammar.kind),
    b"OWNER": ("owner", grammar.text),
    b"SHARED": ("shared", None),
    b"SUBTREE": ("subtree", None),
    b"LIMIT": ("limit", grammar.permits),
    b"REENTRANT": ("reentrant", None),
    b"MAXHOLD": ("max_hold", grammar.lasting),
    b"NOTE": ("note", grammar.text),
    b"THREAD": ("thread", grammar.text),
}
ACQUIRE: grammar.Options = {
    **CLAIM,
    b"WAIT": ("wait", grammar.milliseconds),
    b"BLOCK": ("block", None),
}
NOT_PLAIN = frozenset({"owner", "thread", "limit", "subtree", "reentrant", "max_hold"})
MOST_KNOWN, SHORT = 1_000, 256
"""How many terms are remembered, and of how many bytes: any client can make up others."""


class Terms(NamedTuple):
    """How a claim is to be held, and what its request waits for."""

    owner: str | None
    kind: str
    mode: Mode
    subtree: bool
    limit: int
    reentrant: bool
    max_hold: float | None
    note: str
    thread: str
    wait: float | None
    """For how long it may stand in line, in seconds; None: as long as it takes."""
    blocks: bool
    """Whether the reply comes when that is decided."""
    plain: bool
    """Whether a free lock is granted on them without a look at anything else."""

    def claim(self, id_: str, session: str, name: str) -> Claim:
        """The claim of a session on these terms."""
        told, kind, mode, subtree, limit, reentrant, max_hold, note, thread, wait, _, _ = self
        owner = session if told is None else owner_of(session, told)
        waits = wait != 0
        return Claim(
            id_, session, owner, kind, name, mode, subtree, limit, waits, reentrant, max_hold, note, thread
        )  # fmt: skip


def owner_of(session: str, told: str) -> str:
    """Who holds. Session ids are public: without its own before it, one could name another's owner and enter again."""
    return told if told == session or told.startswith(f"{session}/") else f"{session}/{told}"


class TermsReader:
    """Reads terms, and remembers those that were read lately."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.longest = 4 * (3 * limits.text + 1_024)
        """Bytes that a plain claim takes at most: a note that is not ASCII makes all of its texts count four times."""
        self.known: dict[tuple[bytes, ...], Terms] = {}
        """By the words that say them."""

    def acquire(self, frame: Frame, start: int = 3) -> Terms:
        """Those of an HF.ACQUIRE."""
        words = tuple(frame[start:])
        terms = self.known.get(words)
        if terms is None:
            terms = self.read(frame, start, ACQUIRE)
            if sum(map(len, words)) <= SHORT:
                if len(self.known) >= MOST_KNOWN:
                    self.known.clear()
                self.known[words] = terms
        return terms

    def try_acquire(self, frame: Frame, start: int) -> Terms | None:
        """The same; None if something is wrong with them."""
        try:
            return self.acquire(frame, start)
        except (WireError, UnicodeDecodeError):
            return None

    def read(self, frame: Frame, start: int, options: grammar.Options = CLAIM) -> Terms:
        """Those that a request names from `start` on."""
        found = grammar.options(frame, start, options, self.limits)
        get = found.get
        limit = get("limit", 0)
        if limit and ("shared" in found or "subtree" in found):
            raise WireError("ERR", "a semaphore is neither SHARED nor SUBTREE")
        kind = get("kind") or (grammar.SEMAPHORE if limit else grammar.LOCK)
        if limit and kind.endswith(".lock"):
            raise WireError("ERR", f"{kind} is held by one: LIMIT is for semaphores")
        if not limit and grammar.is_counted(kind):
            raise WireError("ERR", f"{kind} is counted: say LIMIT")
        return Terms(
            owner=get("owner"),
            kind=kind,
            mode="shared" if "shared" in found else "exclusive",
            subtree="subtree" in found,
            limit=limit,
            reentrant="reentrant" in found,
            max_hold=get("max_hold"),
            note=get("note", ""),
            thread=get("thread", ""),
            wait=get("wait"),
            blocks="block" in found,
            plain=NOT_PLAIN.isdisjoint(found),
        )
