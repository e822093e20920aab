"""When the next session, claim or cell dies, and how the table is asked about the dead."""

from __future__ import annotations

from typing import Any

from holdfast.core.table import Dictionary
from holdfast.core.table import questions as ask
from holdfast.core.table.ends import NEVER as NEVER

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
        self.due = self.table.next_end()

    def answer(self, question: ask.Question, now: float) -> Any:
        """What a client's command may know: its heartbeat clears nothing away, because the server does."""
        kind = type(question)
        if kind is ask.Dead:
            return NOBODY
        if kind is ask.NextDeath:
            return None if self.due == NEVER else self.due
        return self._answer(question, now)
