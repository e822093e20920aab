"""What steps of the lock table have left over is done in later turns of the loop, a little in each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.core.table import Dictionary
from holdfast.core.table.commands import PassOn, PassOnBelow

if TYPE_CHECKING:
    from holdfast.server.service import Service

MOST_COST = 2_000
"""What this may cost the table in one turn: about 5 ms."""


class Continuation:
    """The rest of earlier steps, the oldest first. It is not kept in the store: a start looks at every queue."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._rest: dict[PassOn | PassOnBelow, None] = {}
        self._expected = False

    def begin(self, table: Dictionary) -> None:
        """The table was loaded. An earlier server may have left claims in a queue that can be granted."""
        self._rest = {
            PassOn(kind, name, bool(next(iter(line.queue)).claim.limit)): None
            for (kind, name), line in table.lines.items()
            if line.queue
        }
        self.expect()

    def add(self, rest: Iterable[PassOn | PassOnBelow]) -> None:
        """A step has left this over."""
        self._rest.update(dict.fromkeys(rest))
        self.expect()

    def expect(self) -> None:
        """Go on after other requests have had their turn."""
        service = self._service
        if self._rest and not self._expected and service.elsewhere is None:
            self._expected = True
            if service.batches.is_behind:
                service.batches.when_begun(self._go_on)
                return
            # After the next step of a commit: what was done goes to the disk before more is.
            service.loop.call_soon(service.loop.call_soon, self._go_on)

    def _go_on(self) -> None:
        self._expected = False
        service = self._service
        if service.stopping or service.elsewhere is not None:
            return
        service.begin_turn()
        most = service.cost + MOST_COST
        while self._rest and service.cost < most and not service.batches.is_behind:
            command = next(iter(self._rest))
            del self._rest[command]
            try:
                service.step(command)
            except Exception as error:
                # It is no client's request. Claims that can be granted would wait for ever.
                service.broken(error)
                raise
        self.expect()
