"""Those whose next request has to wait for another turn: it may take long or say much, and the turn was used for that.

They go on one after another, user by user, at least one a turn: a user with many connections has no more turns than one
with few. What may say much does not overtake them; what may take long does while there is time left in a turn. Whoever
waits here costs nothing meanwhile.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from holdfast.server.frames import Frame
from holdfast.server.users import User

if TYPE_CHECKING:
    from holdfast.server.connection import Connection
    from holdfast.server.service import Service

SHOWING = frozenset({b"HF.LIST", b"HF.INSPECT", b"HF.FETCH", b"HF.CELLGET", b"INFO"})
"""What may say much; so may CLIENT LIST."""
CLAIMING = frozenset(
    {b"HF.ACQUIRE", b"HF.RELEASE", b"HF.LOOK", b"HF.LEAVE", b"HF.HANDOVER", b"HF.ADOPT", b"HF.BREAK", b"HF.MANY"}
)
"""What may take long, where many claims are concerned."""

PLAIN = frozenset({b"HF.ACQUIRE", b"HF.RELEASE", b"HF.MANY"})
"""Those of them that cost little, but may be many."""


def shows(frame: Frame) -> bool:
    """Whether a request may say much."""
    word = frame[0].upper()
    return word in SHOWING or (word == b"CLIENT" and len(frame) > 1 and frame[1].upper() == b"LIST")


class Patient(Protocol):
    """Who may have to wait: a connection, or a request of HTTP."""

    user: User

    def work(self) -> None:
        """Go on, for one turn."""


class HeldBack:
    """A line for each user, and whose turn it is."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lines: dict[str, deque[Patient]] = {}
        """By user, the next one first."""
        self._on_turn: Patient | None = None
        """Who may carry out one request, whatever others have done in this turn."""
        self._expected = False

    def is_over_for(self, frame: Frame) -> bool:
        """Whether the turn is over for requests like this."""
        service = self._service
        if shows(frame):
            return service.has_shown_enough or bool(self._lines)
        word = frame[0].upper()
        return word in CLAIMING and (service.is_exhausted or (word in PLAIN and service.pipelines.have_done_enough))

    def concerns(self, connection: Connection, frame: Frame) -> bool:
        """Whether this request has to wait. Whose turn it is may carry out one."""
        if not self.is_over_for(frame):
            return False
        if connection is not self._on_turn:
            return True
        self._on_turn = None
        return False

    def is_on_turn(self, patient: Patient) -> bool:
        """Whether it goes on now, whatever others have done in this turn."""
        return patient is self._on_turn

    def add(self, patient: Patient) -> None:
        """Let it go on when those before it have had their turn."""
        self._lines.setdefault(patient.user.name, deque()).append(patient)
        self._expect()

    def _expect(self) -> None:
        if self._expected:
            return
        self._expected = True
        service = self._service
        if service.has_much_to_say:
            service.batches.kept().add_done_callback(lambda _: self._go_on())
        elif service.batches.is_behind:
            service.batches.when_begun(self._go_on)
        else:
            # After the next step of a commit: what was carried out goes to the disk before more is.
            service.loop.call_soon(service.loop.call_soon, self._go_on)

    def _go_on(self) -> None:
        service = self._service
        try:
            self._next()
            while self._lines and not (service.has_shown_enough or self._is_turn_full()):
                self._next()
        finally:
            self._on_turn, self._expected = None, False
            if self._lines:
                self._expect()

    def _is_turn_full(self) -> bool:
        pipelines = self._service.pipelines
        return self._service.is_exhausted or pipelines.have_done_enough or pipelines.have_read_enough

    def _next(self) -> None:
        name, line = next(iter(self._lines.items()))
        del self._lines[name]
        self._on_turn = patient = line.popleft()
        if line:
            self._lines[name] = line  # behind the others
        patient.work()
