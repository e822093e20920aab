"""Lock managers that break one promise each. A search that does not catch them is blind."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.table import Dictionary
from holdfast.core.table.changes import Change, DropRow, PutRow, PutSession
from holdfast.core.table.commands import GRANTED, Command, Leave, Release, Renew, Renewed
from holdfast.core.table.machine import Outcome
from holdfast.core.table.rows import Row
from holdfast.simulate.table_server import TableServer


class ReleasesAnyones(TableServer):
    """Gives back whatever is held under the name, whoever asks."""

    def apply(self, command: Command) -> Outcome:
        if isinstance(command, Release | Leave):
            about = (command.claim.kind, command.claim.name)
            for row in self.rows.rows.values():
                if row.token is not None and (row.claim.kind, row.claim.name) == about:
                    command = replace(command, claim=row.claim)
        return super().apply(command)


class SkipsTheQueue(TableServer):
    """Gives the lock to whoever came last."""

    def apply(self, command: Command) -> Outcome:
        outcome = super().apply(command)
        for at, notice in enumerate(outcome.notices):
            row = self.rows.rows.get(notice.subject)
            if notice.what == GRANTED and row is not None and row.exclusive and not row.claim.limit:
                line = self.rows.lines.get((row.claim.kind, row.claim.name))
                if line is not None and line.queue and not row.claim.subtree:
                    last = max(line.queue, key=lambda each: each.order)
                    self._swap(outcome, row, last)
                    outcome.notices[at] = replace(notice, session=last.claim.session, subject=last.claim.id)
        return outcome

    def _swap(self, outcome: Outcome, first: Row, last: Row) -> None:
        changes: list[Change] = [
            DropRow(first),
            DropRow(last),
            PutRow(last._replace(token=first.token, order=first.order)),
            PutRow(first._replace(token=None, order=last.order)),
        ]
        for change in changes:
            self.rows.put(change)
        outcome.changes += changes


class ForgetsTokens(TableServer):
    """Counts from the start again when it comes back."""

    def restored(self, changes: list[Change]) -> Dictionary:
        rows = super().restored(changes)
        rows.counters.clear()
        return rows


class RecreatesOnRenewal(TableServer):
    """A heartbeat brings back what was taken from its session, and says nothing of it."""

    def apply(self, command: Command) -> Outcome:
        if isinstance(command, Release | Leave):
            self.known.pop(command.claim.id, None)
        if isinstance(command, Renew):
            self._bring_back(command.session)
        outcome = super().apply(command)
        self.known.update({row.id: row for row in self.rows.rows.values() if row.token is not None})
        if isinstance(outcome.reply, Renewed):
            outcome.reply.gone = ()
        return outcome

    def _bring_back(self, session: str) -> None:
        for row in self.known.values():
            if row.claim.session == session and row.id not in self.rows.rows and session in self.rows.sessions:
                self.rows.put(PutRow(row._replace(dies_at=None)))

    @property
    def known(self) -> dict[str, Row]:
        """Every grant that was not given back."""
        found: dict[str, Row] = self.__dict__.setdefault("_known", {})
        return found


class GrantsToTheDead(TableServer):
    """Does not look whether those in line are still alive, and lets them keep what they get."""

    def apply(self, command: Command) -> Outcome:
        now = self.now()
        for session in list(self.rows.sessions.values()):
            rows = self.rows.by_session.get(session.id, {}).values()
            waited = {row.id for row in rows if row.token is None} | (self.waited & {row.id for row in rows})
            self.waited |= waited
            if waited and session.expires_at <= now:
                self.rows.put(PutSession(session._replace(expires_at=now + session.ttl)))
        return super().apply(command)

    @property
    def waited(self) -> set[str]:
        """Claims that have stood in line."""
        found: set[str] = self.__dict__.setdefault("_waited", set())
        return found

    @waited.setter
    def waited(self, claims: set[str]) -> None:
        self.__dict__["_waited"] = claims
