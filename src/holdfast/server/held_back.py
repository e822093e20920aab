"""Those whose next request has to wait for another turn: it may take long or say much, and the turn was used for that.

They go on one after another, user by user, at least one a turn: whoever comes later overtakes nobody, and a user with
many connections has no more turns than one with few. Whoever waits here costs nothing meanwhile.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from holdfast.server.frames import Frame

if TYPE_CHECKING:
    from holdfast.server.connection import Connection
    from holdfast.server.service import Service

SHOWING = frozenset({b"HF.LIST", b"HF.INSPECT", b"HF.FETCH", b"HF.CELLGET", b"INFO"})
"""What may say much; so may CLIENT LIST."""
CLAIMING = frozenset(
    {b"HF.ACQUIRE", b"HF.RELEASE", b"HF.LOOK", b"HF.LEAVE", b"HF.HANDOVER", b"HF.ADOPT", b"HF.BREAK", b"HF.MANY"}
)
"""What may take long, where many claims are concerned."""


def shows(frame: Frame) -> bool:
    """Whether a request may say much."""
    word = frame[0].upper()
    return word in SHOWING or (word == b"CLIENT" and len(frame) > 1 and frame[1].upper() == b"LIST")


class HeldBack:
    """A line of connections for each user, and whose turn it is."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lines: dict[str, deque[Connection]] = {}
        """By user, the next one first."""
        self._on_turn: Connection | None = None
        """Who may carry out one request, whatever others have done in this turn."""
        self._expected = False

    def concerns(self, connection: Connection, frame: Frame) -> bool:
        """Whether a request has to wait for another turn."""
        service = self._service
        if shows(frame):
            waits = service.has_shown_enough or bool(self._lines)
        else:
            waits = service.is_exhausted and frame[0].upper() in CLAIMING
        if waits and connection is self._on_turn:
            self._on_turn = None
            return False
        return waits

    def add(self, connection: Connection) -> None:
        """Let it go on when those before it have had their turn."""
        self._lines.setdefault(connection.user.name, deque()).append(connection)
        self._expect()

    def _expect(self) -> None:
        if self._expected:
            return
        self._expected = True
        service = self._service
        if service.has_much_to_say:
            service.batches.kept().add_done_callback(lambda _: self._go_on())
        else:
            # After the next step of a commit: what was carried out goes to the disk before more is.
            service.loop.call_soon(service.loop.call_soon, self._go_on)

    def _go_on(self) -> None:
        self._expected = False
        service = self._service
        try:
            self._next()
            while self._lines and not (service.has_shown_enough or service.is_exhausted):
                self._next()
        finally:
            self._on_turn = None
            if self._lines:
                self._expect()

    def _next(self) -> None:
        name, line = next(iter(self._lines.items()))
        del self._lines[name]
        self._on_turn = connection = line.popleft()
        if line:
            self._lines[name] = line  # behind the others
        connection.work()
