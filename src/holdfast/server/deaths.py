"""When the next session, claim or cell dies, and how the table is asked about the dead.

The table's own questions look at everything that can die. A server asks a thousand times a second, so it
keeps a moment before which nobody can die, and looks when that has come.
"""

from __future__ import annotations

from typing import Any

from holdfast.core.table import Dictionary
from holdfast.core.table import questions as ask

NEVER = float("inf")
NOBODY = ask.DeadAnswer((), (), ())


class Deaths:
    """Answers the table's questions; those about the dead and the dying from what it knows."""

    def __init__(self, table: Dictionary) -> None:
        self.table = table
        self.due = 0.0
        """Nobody dies before this moment."""
        self._answer = table.answer

    def expect(self, moment: float | None) -> None:
        """Somebody dies then, unless renewed."""
        if moment is not None and moment < self.due:
            self.due = moment

    def look(self) -> None:
        """Find the moment anew."""
        table = self.table
        ends = [session.expires_at for session in table.sessions.values()]
        ends += [row.dies_at for row in table.mortal.values() if row.dies_at is not None]
        ends += [cell.expires_at for cell in table.mortal_cells.values() if cell.expires_at is not None]
        self.due = min(ends, default=NEVER)

    def answer(self, question: ask.Question, now: float) -> Any:
        """What a client's command may know: its heartbeat clears nothing away, because the server does."""
        kind = type(question)
        if kind is ask.Dead:
            return NOBODY
        if kind is ask.NextDeath:
            return None if self.due == NEVER else self.due
        return self._answer(question, now)
