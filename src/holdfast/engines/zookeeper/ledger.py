"""What one client has in ZooKeeper: its links, its claims, and what it has to clear away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.table.rows import Session
from holdfast.engines.zookeeper.answer import Answer
from holdfast.engines.zookeeper.connection import Message
from holdfast.engines.zookeeper.life import Life
from holdfast.engines.zookeeper.link import Link
from holdfast.engines.zookeeper.queue_view import QueueView
from holdfast.errors import EngineFailure
from holdfast.model import Claim, Granted
from holdfast.runtime import clock
from holdfast.runtime.calls import UNDER_WAY, is_inside, new_lock

A_LENGTH = 4 + 11
"""What a path takes beside its letters: its length, and the sequence number that the server adds."""


@dataclass(eq=False)
class Entry:
    """A claim whose node is there, as far as anybody here knows."""

    claim: Claim
    link: Link
    parent: str
    node: str
    """The name of its node."""
    data: dict[str, Any]
    view: QueueView
    token: int | None = None
    slot: int | None = None
    granted_at: float = 0.0
    watching: str | None = None
    """The node that it has a watch on."""
    watch: tuple[str, Callable[..., None]] | None = None
    """The path of its last watch, and what is called back."""
    question: tuple[Message, ...] = ()
    """What is sent when the one before it goes, if it was the next in the queue when it was last looked at."""
    asked: list[Answer] | None = None
    """The answers to that, once it was sent."""
    confirmed: bool = False
    """Whether they prove that the one before it was removed, and not adopted."""
    removed: bool = False
    """Whether its own client has removed its node. Its caller may have had no answer in time."""

    @property
    def path(self) -> str:
        return f"{self.parent}/{self.node}"

    def unwatch(self) -> None:
        """It is called back no more. Otherwise each that gives up would be remembered until the one before it goes."""
        if self.watch is not None:
            (path, woken), self.watch = self.watch, None
            self.link.drop_watch(path, woken)

    def grant(self, token: int, slot: int | None = None) -> Granted:
        """It is granted from now on."""
        self.token, self.slot, self.granted_at = token, slot, clock.now()
        return self.granted()

    def granted(self) -> Granted:
        assert self.token is not None
        left = self.claim.max_hold
        if left is not None:
            left = max(0.0, left - (clock.now() - self.granted_at))
        return Granted(self.token, self.slot, left)


@dataclass(eq=False)
class Condemned:
    """A claim that was told to go, and is removed if it is still there when its time is over."""

    kind: str
    name: str
    node: str
    due: float


class SessionPaths:
    """How many bytes the paths of a session's nodes take, by claim.

    ZooKeeper writes all of them into the one transaction that ends the session. If that is longer than about twice
    `jute.maxbuffer`, no server can read it again: all members leave service, and do not come back.
    """

    MOST = 1_000_000
    """With the default `jute.maxbuffer`, of 1,048,575 bytes, half of what stops an ensemble."""

    def __init__(self) -> None:
        self._by_claim: dict[str, int] = {}
        self._total = 0
        self._lock = new_lock()

    def reserve(self, claim_id: str, *paths: str) -> bool:
        """Count the paths of a claim before they are made; False if they would be too many. Safe to repeat."""
        size = sum(len(path.encode()) + A_LENGTH for path in paths)
        with self._lock:
            if claim_id in self._by_claim:
                return True
            if self._total + size > self.MOST:
                return False
            self._by_claim[claim_id] = size
            self._total += size
            return True

    def free(self, claim_id: str) -> None:
        """The nodes of a claim are gone, or were never asked for."""
        with self._lock:
            if claim_id in self._by_claim:
                # Without a call, and therefore without an interrupt: the total is always that of the claims.
                size = self._by_claim[claim_id]
                del self._by_claim[claim_id]
                self._total -= size


@dataclass(eq=False)
class Member:
    """A session of ours: its link, and who we are under it."""

    lock: threading.RLock
    link: Link
    session: Session
    life: Life
    claims: dict[str, Entry] = field(default_factory=dict)
    sent: set[str] = field(default_factory=set)
    """Claims on their way in whose creation was sent."""
    paths: SessionPaths = field(default_factory=SessionPaths)
    views: dict[str, QueueView] = field(default_factory=dict)
    """By path: the queues in which it has claims."""

    def join(self, parent: str) -> QueueView:
        """The view of a queue, for one more claim in it."""
        with self.lock:
            view = self.views.get(parent)
            if view is None:
                view = self.views[parent] = QueueView(self.link, parent, self.lock)
            view.own += 1
            return view

    def part(self, view: QueueView) -> None:
        """One claim less in a queue."""
        with self.lock:
            # Without a call, and therefore without an interrupt in between.
            view.own -= 1
            if not view.own and view.parent in self.views:
                del self.views[view.parent]

    def forget(self, entry: Entry) -> None:
        """A claim is gone. Safe to repeat: an interrupt leaves it as it was, or forgotten."""
        claim_id, view = entry.claim.id, entry.view
        with self.lock:
            if claim_id in self.claims:
                # Without a call, as above.
                del self.claims[claim_id]
                view.own -= 1
                if not view.own and view.parent in self.views:
                    del self.views[view.parent]
        self.link.gone.pop(claim_id, None)
        self.paths.free(claim_id)

    def enrol(self, entry: Entry) -> Entry:
        """Keep a claim that has joined its view."""
        self.claims[entry.claim.id] = entry
        return entry

    def describe(self, claim: Claim) -> dict[str, Any]:
        """What people see of a claim."""
        return {
            "owner": claim.owner, "app": self.session.app, "host": self.session.host, "pid": self.session.pid,
            "thread": claim.thread, "note": claim.note,
        }  # fmt: skip


class Ledger:
    """Everything by session and claim. Safe to use from several threads: each step is one change of a dictionary."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.lock = new_lock()
        """Over all that this client knows. Reentrant, so that a thread can tell that it has it."""
        self.members: dict[str, Member] = {}
        self.reader: Link | None = None
        """For those who only look, while there is no session."""
        self.condemned: dict[str, Condemned] = {}
        self.used: dict[str, float] = {}
        """By path: when a line was last used here."""

    def member(self, session: str) -> Member | None:
        """A session that is not over. One that we gave up ourselves is ended: every request would keep it alive.

        Every verb asks for it before it sends anything: EngineUnavailable if a step of this thread is under way.
        """
        self.check_free()
        member = self.members.get(session)
        if member is None or member.link.over is not None:
            return None
        if clock.now() < member.life.good_until(member.link.shorter):
            return member
        self.members.pop(session, None)
        member.link.say_farewell()
        return None

    def check_free(self) -> None:
        """Raise EngineUnavailable if a step of this thread is under way."""
        if is_inside(self.lock):
            raise EngineFailure(self._address, UNDER_WAY, "not done")

    def entry(self, claim: Claim) -> Entry | None:
        member = self.members.get(claim.session)
        return None if member is None else member.claims.get(claim.id)

    def forget(self, entry: Entry) -> None:
        """Its node is gone."""
        member = self.members.get(entry.claim.session)
        if member is not None:
            member.forget(entry)
        entry.unwatch()

    def links(self) -> list[Link]:
        found = [member.link for member in self.members.values()]
        return found if self.reader is None else [*found, self.reader]
