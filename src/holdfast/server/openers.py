"""Which user opened which session, so that one user leaves room for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container


class Openers:
    """Sessions by user. After a start they are nobody's until they are resumed: the store does not keep it."""

    def __init__(self) -> None:
        self._users: dict[str, str] = {}
        self.sessions: Counter[str] = Counter()

    def add(self, session: str, user: str) -> None:
        """A user has opened or resumed it; who did so first counts."""
        if session not in self._users:
            self._users[session] = user
            self.sessions[user] += 1

    def drop(self, session: str) -> str | None:
        """The session has ended. Who had opened it is returned, if that is known."""
        user = self._users.pop(session, None)
        if user is not None:
            self.sessions[user] -= 1
        return user

    def reconcile(self, sessions: Container[str]) -> None:
        """The table is another one: forget what is not in it."""
        for session in [session for session in self._users if session not in sessions]:
            self.drop(session)
