"""What both engines on PostgreSQL are made of: an address, connections, bells, and their end."""

from __future__ import annotations

from typing import ClassVar

from holdfast.core.table.commands import Notice
from holdfast.core.urls import Url
from holdfast.engines.alarm import Alarm
from holdfast.engines.engine import Deliver, nobody
from holdfast.engines.postgres.address import LIBPQ_OPTIONS, OWN_OPTIONS, parse_address
from holdfast.engines.postgres.connections import Checked, Connections


class Site:
    """One client's way to a PostgreSQL."""

    schemes: ClassVar[tuple[str, ...]] = ("postgresql",)
    options: ClassVar[frozenset[str]] = OWN_OPTIONS | LIBPQ_OPTIONS
    shortest_ttl = 0.1

    def __init__(self, url: Url, namespace: str) -> None:
        self.place = parse_address(url)
        self.address = self.place.shown
        self.deliver: Deliver = nobody
        self._start()

    def _start(self) -> None:
        """What a process starts with, and a fork starts with again."""
        self._checked = Checked()
        self._connections: list[Connections] = []
        self._bells: list[Alarm] = []

    def _tell(self, notice: Notice) -> None:
        """Give a notice to whoever takes them by then."""
        self.deliver(notice)

    def abandon(self) -> None:
        """This process is a fork: the connections are its parent's, and so is what they hold."""
        for connections in self._connections:
            connections.abandon()
        self._start()

    def close(self) -> None:
        for connections in self._connections:
            connections.close()
        for bell in self._bells:
            bell.close()
        self._start()
