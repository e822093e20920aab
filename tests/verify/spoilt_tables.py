"""Engines whose lock table is spoilt in one place, under verbs that are as they should be."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any

from holdfast.core.table.commands import CellSet, Command, Enter, Look, OwnClaimsPage, Release, Renew
from holdfast.core.table.machine import Outcome
from holdfast.engines.sqlite.engine import Connected, SqliteEngine, SqlitePort
from holdfast.model import Granted
from holdfast.runtime.call_pool import PoolItem


class SpoiltPort(SqlitePort):
    """Lets its engine spoil each command before, and the table after."""

    engine: SpoiltTable

    def _transact(self, item: PoolItem[Connected], command: Command, until: float) -> Outcome:
        command = self.engine.before(command)
        outcome = super()._transact(item, command, until)
        assert item.value is not None
        self.engine.after(item.value.connection, command, outcome)
        return outcome


class SpoiltTable(SqliteEngine):
    """The embedded engine, with a place to spoil it."""

    def port(self) -> SqlitePort:
        port = SpoiltPort(self)
        self.ports.append(port)
        return port

    def before(self, command: Command) -> Command:
        return command

    def after(self, connection: sqlite3.Connection, command: Command, outcome: Outcome) -> None:
        return


class RecreatesOnRenewal(SpoiltTable):
    """A heartbeat takes everything again that was ever granted to its session, released or not.

    No list shows that to the client, which would withdraw it.
    """

    def _start(self) -> None:
        super()._start()
        self.granted: dict[str, tuple[Any, ...]] = {}

    def after(self, connection: sqlite3.Connection, command: Command, outcome: Outcome) -> None:
        if isinstance(command, Enter | Look) and isinstance(outcome.reply, Granted):
            row = connection.execute("SELECT * FROM claims WHERE id = ?", (command.claim.id,)).fetchone()
            if row is not None:
                self.granted[command.claim.id] = tuple(row)
        if isinstance(command, Renew):
            for id_, row in list(self.granted.items()):
                if id_.startswith(command.session):
                    places = ", ".join("?" * len(row))
                    connection.execute(f"INSERT OR IGNORE INTO claims VALUES ({places})", row)
        if isinstance(outcome.reply, OwnClaimsPage):
            shown = tuple(one for one in outcome.reply.claims if one[0].id not in self.granted)
            outcome.reply = replace(outcome.reply, claims=shown)


class IgnoresVersions(SpoiltTable):
    """A cell takes every value, whatever version was expected."""

    def before(self, command: Command) -> Command:
        return replace(command, expected=None) if isinstance(command, CellSet) else command


class GivesOnePermitMore(SpoiltTable):
    """A semaphore counts one too many."""

    def before(self, command: Command) -> Command:
        if isinstance(command, Enter) and command.claim.limit:
            return replace(command, claim=replace(command.claim, limit=command.claim.limit + 1))
        return command


class ForgetsToRelease(RecreatesOnRenewal):
    """Now and then a release is confirmed, and the lock stays as it was until its session ends."""

    releases = 0

    def after(self, connection: sqlite3.Connection, command: Command, outcome: Outcome) -> None:
        if isinstance(command, Release):
            row = self.granted.get(command.claim.id)
            self.releases += 1
            if row is not None and self.releases % 3 == 0:
                places = ", ".join("?" * len(row))
                connection.execute(f"INSERT OR IGNORE INTO claims VALUES ({places})", row)
        elif not isinstance(command, Renew):
            super().after(connection, command, outcome)
