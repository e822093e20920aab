"""What one client has to know of its own requests, whichever thread, task or keeper made them."""

from __future__ import annotations

import secrets
from dataclasses import replace

from holdfast.engines.postgres.commits import Commits
from holdfast.model import Claim, Granted
from holdfast.runtime import clock


class Unflushed:
    """Releases that were committed without waiting for the disk; shared by all that one client sends.

    A server that crashes may forget the last of them, and the claim is back while its session lives.
    But a crash breaks every connection: whoever sees one break withdraws these claims again. Any
    later commit that did wait for the disk has taken all of them along.
    """

    def __init__(self) -> None:
        self.claims: dict[str, Claim] = {}
        self.suspect = False
        """Whether a connection broke since."""

    def snapshot(self) -> list[str]:
        return list(self.claims)

    def flushed(self, ids: list[str]) -> None:
        for id_ in ids:
            self.claims.pop(id_, None)


class PassedOn:
    """Grants that somebody's release made for a claim of this process: that one need not ask the server again.

    The commit was confirmed to us, or told by the server, and the deadline is the session's. What is left of
    `max_hold` counts from the sending of the request that granted it: whoever is granted may be slow to look.
    """

    def __init__(self) -> None:
        self._grants: dict[str, tuple[Granted, float]] = {}

    def add(self, claim_id: str, granted: Granted, sent: float) -> None:
        self._grants[claim_id] = granted, sent

    def take(self, claim_id: str) -> Granted | None:
        """The grant, to be had once."""
        found = self._grants.pop(claim_id, None)
        if found is None:
            return None
        granted, sent = found
        if granted.hold_left is None:
            return granted
        return replace(granted, hold_left=granted.hold_left - (clock.now() - sent))


class Ledger:
    """All of it."""

    def __init__(self) -> None:
        self.channel = f"holdfast_{secrets.token_hex(16)}"
        """Where this client is notified. No secret: the texts of its queries show it to roles that may read those."""
        self.commits = Commits()
        self.own: set[str] = set()
        """Sessions of this client: they are told what happens to them without the server's help."""
        self.unflushed = Unflushed()
        self.passed_on = PassedOn()
        self.queued: set[str] = set()
        """Claims that are known to stand in line."""
        self.doubtful: set[str] = set()
        """Claims whose enter was repeated: the first one may still arrive, after whatever ends them."""

    def forget(self, claim_id: str) -> None:
        """A claim comes anew, or is over."""
        self.passed_on.take(claim_id)
        self.queued.discard(claim_id)
