"""What all connections of one client share: the way to the server, the session and its secret, pushed grants."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from typing import Any

from holdfast.core.table.commands import GONE, GRANTED, LETTER, MISSED, RECONNECTED, Notice
from holdfast.engines.engine import Deliver
from holdfast.engines.holdfast import words
from holdfast.engines.holdfast.route import Route
from holdfast.model import Granted
from holdfast.runtime import clock


class Desk:
    """One client's papers, and where it takes its time and its chances from."""

    uniform = staticmethod(random.uniform)
    now = staticmethod(clock.now)

    def __init__(self, address: str, route: Route, deliver: Deliver) -> None:
        self.address, self.route, self._deliver = address, route, deliver
        self.leave: Callable[[], None] = lambda: None
        """Called when the server is about to go: what is not sent to it any more cannot get lost there."""
        self.session: str | None = None
        self._secret = ""
        self.expected: set[str] = set()
        """Claims that were sent and not given back: a push about another one comes too late."""
        self.handed: dict[str, Granted] = {}
        """Grants that a push brought, until whoever waits takes them."""

    def secret(self, session: str) -> str:
        """The secret of a session that is opened now, or once more."""
        if session != self.session:
            self.expected, self.handed = set(), {}
            self._secret = self.new_secret()
            self.session = session
        return self._secret

    def new_secret(self) -> str:
        """One that nobody can guess."""
        return secrets.token_urlsafe(24)

    def known_secret(self, session: str) -> str | None:
        return self._secret if session == self.session else None

    def ended(self, session: str) -> None:
        """There is no such session any more."""
        if session == self.session:
            self.session = None

    def forget(self, claim: str) -> None:
        """It is gone, or was given back."""
        self.expected.discard(claim)
        self.handed.pop(claim, None)

    def hear(self, push: list[Any]) -> None:
        """Hand a push on, in whatever thread it was read."""
        if len(push) < 2:
            return  # something newer than this client
        what, subject = push[0], push[1]
        if what == b"hf.granted":
            claim, grant = subject.decode(), words.granted(push[2:])
            if grant.hold_left is None and claim in self.expected:
                self.handed[claim] = grant
            self._deliver(Notice(self.session or "", claim, GRANTED))
        elif what == b"hf.gone":
            # Whoever waits looks; whoever holds learns the reason with the next heartbeat.
            claim = subject.decode()
            self.handed.pop(claim, None)
            self._deliver(Notice(self.session or "", claim, GRANTED))
            self._deliver(Notice(self.session or "", claim, GONE))
        elif what == b"hf.letter":
            self._deliver(Notice(subject.decode(), push[2].decode(), LETTER))
        elif what == b"hf.bye":
            self.leave()
        elif what == b"hf.over":
            self.missed()

    def missed(self) -> None:
        """Pushes may have got lost, or the session: everybody looks by himself."""
        self.handed.clear()
        self._deliver(Notice(self.session or "", "", RECONNECTED))
        self._deliver(Notice(self.session or "", "", MISSED))
