"""Who waits inside the server: replies that come later, and waits that end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING

from holdfast.server.timers import Timers

if TYPE_CHECKING:
    from holdfast.core.table.rows import Row
    from holdfast.server.connection import Connection

MOMENT = 1.0
"""Seconds until a wait may end again whose end was not kept: a full disk is not asked all the time."""


class Waits:
    """Claims in line: since when, until when, and which connection's next reply depends on them.

    `over` is called with a claim whose wait is over, `nothing` with a watch that brought nothing in time, and
    `stopped` with a claim that is waited for no longer, since when and until when that was. `cost` says what the table
    was asked so far.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        over: Callable[[str], None],
        nothing: Callable[[str, str], object],
        stopped: Callable[[str, float | None, float], None],
        cost: Callable[[], int],
    ) -> None:
        self._loop, self._stopped = loop, stopped
        self._since: dict[str, float] = {}
        self._ends: Timers[str] = Timers(loop, over, cost)
        self._blocked: dict[str, Connection] = {}
        self._fetching: dict[tuple[str, str], tuple[Connection, int]] = {}
        self._fetch_ends: Timers[tuple[str, str]] = Timers(loop, lambda key: nothing(*key), cost)

    def __len__(self) -> int:
        return len(self._since)

    def begin(self, claim_id: str, now: float, wait: float | None, blocked: Connection | None) -> None:
        """A claim has taken a place in line."""
        self._since.setdefault(claim_id, now)
        if wait is not None and claim_id not in self._ends:
            self._ends.put(claim_id, self._loop.time() + wait)
        if blocked is not None:
            self._blocked[claim_id] = blocked
            blocked.waits_for = claim_id

    def again(self, claim_id: str, since: float | None, until: float) -> None:
        """What was decided about it was not kept: it waits as before, and a moment at least."""
        if since is not None:
            self._since.setdefault(claim_id, since)
        if claim_id not in self._ends:
            self._ends.put(claim_id, max(until, self._loop.time() + MOMENT))

    def until(self, claim_id: str) -> float | None:
        """When its wait is over by itself, in the time of the loop."""
        return self._ends.moment(claim_id)

    def since(self, claim_id: str) -> float | None:
        """When it came, asked once: after that it does not wait any more."""
        return self._since.pop(claim_id, None)

    def decided(self, claim_id: str) -> Connection | None:
        """It waits no longer. The connection whose reply was held back for it, if there is one."""
        self._stop_timer(claim_id)
        return self._blocked.pop(claim_id, None) if self._blocked else None

    def blocked(self) -> list[str]:
        """The claims for which a reply is held back."""
        return list(self._blocked)

    def _stop_timer(self, claim_id: str) -> None:
        until = self._ends.drop(claim_id) if self._ends else None
        if until is not None:
            self._stopped(claim_id, self._since.get(claim_id), until)

    def forget(self, claim_id: str) -> None:
        """It is gone, by its own wish or with its session. Who waits for a reply about it is told elsewhere."""
        self._stop_timer(claim_id)
        if self._since:
            self._since.pop(claim_id, None)

    def fetch(self, session: str, watch: str, after: int, wait: float, connection: Connection) -> None:
        """A connection waits for the next event of a watch."""
        key = (session, watch)
        former = self._fetching.pop(key, None)
        assert former is None, "a session has one connection that reads its watches at a time"
        self._fetch_ends.put(key, self._loop.time() + wait)
        self._fetching[key] = (connection, after)
        connection.waits_for = key

    def letter(self, session: str, watch: str) -> tuple[Connection, int] | None:
        """An event has come: who waits for it, and after which number."""
        found = self._fetching.pop((session, watch), None) if self._fetching else None
        if found is not None:
            self._fetch_ends.drop((session, watch))
        return found

    def ended(self, connection: Connection) -> bool:
        """The connection's session or the connection itself is no more: whether a reply was held back for it."""
        key, connection.waits_for = connection.waits_for, None
        if key is None:
            return False
        # Another connection may wait for the same by now: a session goes on elsewhere.
        if isinstance(key, str):
            return self._blocked.get(key) is connection and self._blocked.pop(key) is not None
        found = self._fetching.get(key)
        return found is not None and found[0] is connection and self.letter(*key) is not None

    def reconcile(self, claims: Mapping[str, Row], watches: Container[tuple[str, str]]) -> list[Connection]:
        """The table is another one: forget what is not in it. Those who waited for that are returned."""
        for claim_id in list(self._since):
            row = claims.get(claim_id)
            # One that holds was given back and asked for again, and nothing of that was kept: it waits for nothing.
            if row is None or row.token is not None:
                self.forget(claim_id)
        lost = [self._blocked.pop(claim_id) for claim_id in list(self._blocked) if claim_id not in claims]
        for key in [key for key in self._fetching if key not in watches]:
            waiting = self.letter(*key)
            if waiting is not None:
                lost.append(waiting[0])
        return lost
