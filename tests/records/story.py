"""One fixed story on any engine: two clients take, share, wait for, hand over and write one of everything.

`play` runs in a child process (tests/faults/child.py). It tells the test how each step ended, then waits. The test
stops the process. Then `operate` runs in another one and does what the stopped clients cannot react to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import holdfast
from tests.faults.child import tell

KEEP = 30 * 24 * 3600.0
PATIENCE = 60.0
KEPT: list[Any] = []
"""A grant that is garbage would be let go."""


def play(url: str, ttl: float, namespace: str) -> None:
    """Play the story, tell how it went, and wait until the process is ended."""
    story = Story(url, ttl, namespace)
    tell({"steps": story.steps(), "sessions": story.sessions(), "offers": story.offers})
    input()


def operate(url: str, ttl: float, namespace: str, offers: dict[str, str]) -> None:
    """Break one lock of the story's clients and adopt another, while those clients stand still."""
    operator = holdfast.connect(url, app="operator", namespace=namespace, ttl=ttl)
    steps = [
        outcome_of("an operator breaks a lock", lambda: operator.break_lock("short", force=True)),
        outcome_of("an operator adopts a lock", lambda: adopt(operator, offers)),
    ]
    grant = operator.lock("session/three").acquire()
    tell({"steps": steps, "sessions": [grant.owner.partition("/")[0]]})
    input()


def adopt(operator: holdfast.Client, offers: dict[str, str]) -> str:
    if "adopted" not in offers:
        return "nothing was offered"
    grant = operator.adopt(offers["adopted"])
    KEPT.append(grant)
    return grant.name


def outcome_of(name: str, step: Callable[[], object]) -> str:
    """One line: what was done, and how it ended."""
    try:
        outcome = step()
    except (holdfast.Unsupported, holdfast.InvalidRequest) as error:
        outcome = type(error).__name__
    return f"{name}: {outcome or 'done'}"


class Story:
    """Two clients, and what they hold."""

    def __init__(self, url: str, ttl: float, namespace: str) -> None:
        self.billing = holdfast.connect(url, app="billing", namespace=namespace, ttl=ttl)
        self.shipping = holdfast.connect(url, app="shipping", namespace=namespace, ttl=ttl)
        self.kept = KEPT
        self.offers: dict[str, str] = {}
        """By the lock's name: what another client can adopt."""

    def steps(self) -> list[str]:
        """Every step in order, and how it ended."""
        every = (
            self.a_lock_is_held, self.a_claim_waits, self.a_hold_ends_by_itself, self.many_read, self.a_writer_waits,
            self.a_subtree_is_held, self.permits_are_used_up, self.several_as_one, self.a_leader_is_elected,
            self.a_grant_is_offered, self.a_grant_is_offered_again, self.a_cell_is_written, self.a_cell_is_deleted,
            self.a_latch_counts, self.work_is_done_once, self.members_share_keys, self.a_log_grows, self.a_lock_is_free,
            self.a_watch_is_open,
        )  # fmt: skip
        return [outcome_of(step.__name__.replace("_", " "), step) for step in every]

    def sessions(self) -> list[str]:
        """The session ids of the two clients, as owners show them."""
        return [self.session_of(client, name) for client, name in ((self.billing, "one"), (self.shipping, "two"))]

    def session_of(self, client: holdfast.Client, name: str) -> str:
        grant = client.lock(f"session/{name}").acquire()
        self.kept.append(grant)
        return grant.owner.partition("/")[0]

    # Steps

    def a_lock_is_held(self) -> None:
        self.kept.append(self.billing.lock("orders/1", note="the nightly run").acquire())

    def a_claim_waits(self) -> str:
        return self._queue(lambda: self.shipping.lock("orders/1").acquire(), "orders/1", "lock")

    def a_hold_ends_by_itself(self) -> None:
        self.kept.append(self.billing.lock("short", max_hold=3000.0).acquire())

    def many_read(self) -> None:
        self.kept.append(self.billing.rwlock("cache").read().acquire())
        self.kept.append(self.shipping.rwlock("cache").read().acquire())

    def a_writer_waits(self) -> str:
        return self._queue(lambda: self.shipping.rwlock("cache").write().acquire(), "cache", "lock")

    def a_subtree_is_held(self) -> str:
        self.kept.append(self.billing.lock("tree/a", subtree=True).acquire())
        return self._queue(lambda: self.shipping.lock("tree/a/b/c").acquire(), "tree/a/b/c", "lock")

    def permits_are_used_up(self) -> str:
        self.kept.append(self.billing.semaphore("gpu", limit=2).acquire())
        self.kept.append(self.shipping.semaphore("gpu", limit=2).acquire())
        return self._queue(lambda: self.shipping.semaphore("gpu", limit=2).acquire(), "gpu", "semaphore")

    def several_as_one(self) -> None:
        self.kept.append(self.billing.lock_all("account/7", "account/3").acquire())

    def a_leader_is_elected(self) -> None:
        self.kept.append(self.billing.election("scheduler", value="host:9000").campaign())

    def a_grant_is_offered(self) -> None:
        grant = self.billing.lock("offered").acquire()
        self.offers["offered"] = grant.hand_over()
        self.kept.append(grant)

    def a_grant_is_offered_again(self) -> None:
        grant = self.billing.lock("adopted").acquire()
        self.offers["adopted"] = grant.hand_over()
        self.kept.append(grant)

    def a_cell_is_written(self) -> None:
        cell = self.billing.cell("config")
        cell.set({"colour": "red", "sizes": [1, 2]}, version=0)
        _, version = cell.get()
        cell.set({"colour": "Grün"}, version=version)

    def a_cell_is_deleted(self) -> None:
        cell = self.billing.cell("old")
        cell.set("gone soon")
        cell.delete()

    def a_latch_counts(self) -> str:
        return str(self.billing.latch("ready", count=3, keep=KEEP).count_down())

    def work_is_done_once(self) -> str:
        return str(self.billing.once("payment:77", keep=KEEP).run(lambda grant: {"paid": 77}))

    def members_share_keys(self) -> str:
        first = self.billing.partition("workers", "worker-1")
        first.join()
        self.kept.append(first)
        return str(first.members())

    def a_log_grows(self) -> str:
        log = self.billing.log("orders")
        log.append(["made", "paid"], expected=0)
        return str(log.append([{"sent": True}], expected=2))

    def a_lock_is_free(self) -> None:
        self.billing.lock("free").acquire().release()

    def a_watch_is_open(self) -> None:
        stream = self.shipping.watch("sh")
        self.kept.append(stream.__enter__())

    # Waiting

    def _queue(self, acquire: Callable[[], object], name: str, kind: str) -> str:
        """Let a thread ask for what is taken, and return when it stands in the queue."""
        if not self.billing.guarantees.fair:
            return "no queue"
        before = self._waiters(name, kind)
        failed: list[BaseException] = []

        def ask() -> None:
            try:
                acquire()
            except holdfast.HoldfastError as error:
                failed.append(error)

        threading.Thread(target=ask, name=f"asks for {name}", daemon=True).start()
        until = time.monotonic() + PATIENCE
        while self._waiters(name, kind) == before and not failed:
            if time.monotonic() > until:
                raise AssertionError(f"never queued for {name}")
            time.sleep(0.01)
        if failed:
            raise failed[0]
        return "queued"

    def _waiters(self, name: str, kind: str) -> int:
        return len(self.billing.inspect(name, kind=kind).waiters)
