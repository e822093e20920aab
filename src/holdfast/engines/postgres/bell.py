"""Where a keeper sleeps: until it is rung from this process, or PostgreSQL notifies its connection."""

from __future__ import annotations

import select

from holdfast.core.table.commands import MISSED, RECONNECTED, Notice
from holdfast.engines.alarm import Alarm
from holdfast.engines.postgres.commits import Commit
from holdfast.engines.postgres.table import PostgresTable
from holdfast.engines.postgres.trouble import lost
from holdfast.engines.postgres.wire import SqlError, WireLost
from holdfast.errors import EngineFailure
from holdfast.runtime import clock
from holdfast.runtime.blocking import drive

RECONNECT = 0.5
"""How often to try to be notified again after the connection broke, in seconds."""
FIRST_LOOK, LAST_LOOK = 0.005, 0.5
LONGEST_STEP = 20.0
"""How long a server process can go on with a step whose client is gone: its own limits end it before."""
# A process without a client ends. One behind a proxy stays, and serves another client.
_RUNNING = (
    "SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(pid, state = 'idle')), '[]')"
    " FROM pg_catalog.pg_stat_activity WHERE pid = ANY(ARRAY[{}]::int[])"
)


class PostgresBell(Alarm):
    """A signal that is also set by what the server sends."""

    def __init__(self, table: PostgresTable) -> None:
        super().__init__()
        self.table, self.connections = table, table.connections
        self.commits = table.ledger.commits
        self.commits.wake = self.interrupt
        self._broken = False
        self._look_at = self._pause = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until something comes, and deliver it; whether anything came."""
        if self._rung:
            self.empty()
            return True
        if self._broken:
            drive(self._mend())
        if self.connections.missed:
            self._tell_reconnected()
        due = self._look_after_commits()
        if due is not None:
            timeout = due if timeout is None else min(timeout, due)
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        listening = self._listening()
        if listening is not None:
            poll.register(listening, select.POLLIN)
        elif self._broken:
            timeout = RECONNECT if timeout is None else min(timeout, RECONNECT)
        ready = poll.poll(None if timeout is None else timeout * 1000)
        for descriptor, _ in ready:
            if descriptor == self.descriptor:
                self.empty()
            else:
                drive(self._receive())
        return bool(ready)

    def _listening(self) -> int | None:
        wire = self.connections.listening
        return wire.descriptor if wire is not None and wire.alive else None

    async def _receive(self) -> None:
        """Read what came, unless somebody else uses the connection now: who does delivers it."""
        wire = await self.connections.take_listening()
        if wire is None:
            return
        try:
            for message in wire.notifications():
                self.table.hear(message)
        except WireLost:
            self._broken = True
            self.table.unflushed.suspect = bool(self.table.unflushed.claims)
            self.connections.drop_idle()
        finally:
            self.connections.give(wire)
        if self._broken:
            await self._mend()

    async def _mend(self) -> None:
        """Listen again on a new connection. Nobody knows what was missed, so everybody here looks."""
        try:
            self.connections.give(await self.connections.take(clock.now() + RECONNECT))
            await self.table.withdraw_again(clock.now() + RECONNECT)
        except EngineFailure:
            return
        self._broken = False
        self._tell_reconnected()

    def _tell_reconnected(self) -> None:
        """Nobody here knows what was missed, so everybody looks."""
        self.connections.missed = False
        self.table.deliver(Notice("", "", RECONNECTED))
        self.table.deliver(Notice("", "", MISSED))

    def _look_after_commits(self) -> float | None:
        """Find out whether commits whose answers were lost are over, and tell this client to look.

        In how many seconds to do that again, if there is something left to find out.
        """
        ended = self.commits.ended()
        if not ended:
            self._pause = FIRST_LOOK
            return None
        now = clock.now()
        if now >= self._look_at:
            self._pause = min(LAST_LOOK, max(FIRST_LOOK, self._pause * 2))
            try:
                self._settle(
                    ended, dict(drive(self._running([commit.server_pid for commit in ended], now + RECONNECT)))
                )
            except EngineFailure:
                self._pause = LAST_LOOK
            self._look_at = clock.now() + self._pause
        return max(0.0, self._look_at - now)

    def _settle(self, ended: list[Commit], running: dict[int, bool]) -> None:
        """Forget the commits that are over, and tell the client to look if one has ended or may have."""
        news = False
        for commit in ended:
            commit.ended_at = commit.ended_at or clock.now()
            idle = running.get(commit.server_pid)
            over = idle is None or (idle and not commit.direct) or clock.now() > commit.ended_at + LONGEST_STEP
            if over:
                self.commits.open.discard(commit)
            news = news or over or (bool(idle) and not commit.told)
            commit.told = commit.told or bool(idle)
        if news:
            self.table.deliver(Notice("", "", MISSED))

    async def _running(self, pids: list[int], until: float) -> list[tuple[int, bool]]:
        """Which of these server processes are there, and whether each does nothing."""
        wire = await self.connections.take(until)
        try:
            (found,) = await wire.send([_RUNNING.format(",".join(map(str, pids)))], until)
        except (SqlError, WireLost) as error:
            raise lost(self.table.address, error, committing=False) from error
        finally:
            await self.table.give_back(wire, until)
        return found  # type: ignore[no-any-return] # it was JSON
