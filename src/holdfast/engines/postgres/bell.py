"""Where a keeper sleeps: until it is rung from this process, or PostgreSQL notifies its connection."""

from __future__ import annotations

import select

from holdfast.core.table.commands import MISSED, Notice
from holdfast.engines.alarm import Alarm
from holdfast.engines.postgres.table import PostgresTable
from holdfast.engines.postgres.wire import WireLost
from holdfast.errors import EngineUnavailable
from holdfast.runtime import clock
from holdfast.runtime.blocking import run

RECONNECT = 0.5
"""How often to try to be notified again after the connection broke, in seconds."""


class PostgresBell(Alarm):
    """A signal that is also set by what the server sends."""

    def __init__(self, table: PostgresTable) -> None:
        super().__init__()
        self.table, self.connections = table, table.connections
        self._broken = False

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until something comes, and deliver it; whether anything came."""
        if self._rung:
            self.empty()
            return True
        if self._broken:
            self._mend()
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
                self._receive()
        return bool(ready)

    def _listening(self) -> int | None:
        wire = self.connections.listening
        return wire.descriptor if wire is not None and wire.alive else None

    def _receive(self) -> None:
        """Read what came, unless somebody else uses the connection now: who does delivers it."""
        if not run(self.connections.turns.take(0.0)):
            return
        wire = self.connections.listening
        if wire is None or not wire.alive:
            self.connections.turns.give()
            return
        try:
            for channel, text in wire.notifications():
                self.table.hear(channel, text)
        except WireLost:
            self._broken = True
            self.table.unflushed.suspect = bool(self.table.unflushed.claims)
            self.connections.drop_idle()
            self.connections.listening = None
        finally:
            self.connections.turns.give()
        if self._broken:
            self._mend()

    def _mend(self) -> None:
        """Listen again on a new connection. Nobody knows what was missed, so everybody here looks."""
        try:
            self.connections.give(run(self.connections.take(clock.now() + RECONNECT)))
            run(self.table.withdraw_again(clock.now() + RECONNECT))
        except EngineUnavailable:
            return
        self._broken = False
        self.table.deliver(Notice("", "", MISSED))
