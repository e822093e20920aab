"""Which connections speak for which session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.server.connection import Connection


class Attached:
    """The connections of one session: at most one of each role."""

    __slots__ = ("main", "side")

    def __init__(self) -> None:
        self.main: Connection | None = None
        self.side: Connection | None = None

    def __iter__(self) -> Iterator[Connection]:
        if self.main is not None:
            yield self.main
        if self.side is not None:
            yield self.side


class Attachments:
    """Sessions that somebody is connected for."""

    def __init__(self) -> None:
        self._by_session: dict[str, Attached] = {}

    def of(self, session: str) -> Attached | tuple[()]:
        """The connections of a session, the main one first."""
        return self._by_session.get(session, ())

    def main(self, session: str) -> Connection | None:
        """The connection that makes the session's claims."""
        found = self._by_session.get(session)
        return None if found is None else found.main

    def sessions(self) -> list[str]:
        """Every session that somebody is connected for."""
        return list(self._by_session)

    def attach(self, connection: Connection, session: str, side: bool, quiet: bool) -> Connection | None:
        """Let a connection speak for a session. The former one of its role, which does so no more, is returned."""
        if connection.session != session or connection.side != side:
            self.detach(connection)
        found = self._by_session.get(session)
        if found is None:
            found = self._by_session[session] = Attached()
        former = found.side if side else found.main
        if side:
            found.side = connection
        else:
            found.main = connection
        connection.session, connection.side, connection.quiet = session, side, quiet
        if former is None or former is connection:
            return None
        former.session = ""
        return former

    def detach(self, connection: Connection) -> None:
        """The connection speaks for nobody any more."""
        found = self._by_session.get(connection.session)
        if found is not None:
            if found.main is connection:
                found.main = None
            if found.side is connection:
                found.side = None
            if found.main is None and found.side is None:
                del self._by_session[connection.session]
        connection.session, connection.is_bereft = "", False

    def end(self, session: str) -> list[Connection]:
        """The session has ended: nobody speaks for it any more. Who did is returned."""
        found = self._by_session.pop(session, None)
        connections = [] if found is None else list(found)
        for connection in connections:
            connection.session, connection.is_bereft = "", True
        return connections
