"""Those whose next request may take long or say much, in the order in which they asked: some have their turn at a time.

Whoever waits here costs nothing meanwhile. Thousands may.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from holdfast.server.frames import Frame

if TYPE_CHECKING:
    from holdfast.server.connection import Connection
    from holdfast.server.service import Service

LONG = frozenset({b"HF.LIST", b"HF.INSPECT", b"HF.FETCH", b"HF.CELLGET", b"INFO", b"CLIENT", b"COMMAND"})
"""What may take long or say much."""


class HeldBack:
    """A line of connections."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._line: deque[Connection] = deque()
        self._expected = False

    def concerns(self, frame: Frame) -> bool:
        """Whether a request has to wait for another turn."""
        return frame[0].upper() in LONG and self._service.holds_back

    def add(self, connection: Connection) -> None:
        """Let it go on when those before it have had their turn."""
        self._line.append(connection)
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
        try:
            while self._line and not self._service.holds_back:
                self._line.popleft().work()
        finally:
            if self._line:
                self._expect()
