"""What clients were told and have not taken: all of it together stays below a limit."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.server.burdens import heaviest_first

if TYPE_CHECKING:
    from holdfast.server.connection import Connection
    from holdfast.server.service import Service

log = logging.getLogger("holdfast.server")


class Unread:
    """Looks at all connections as often as it can have become too much: a look costs something for each of them."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._until_look = 0
        """Bytes that may be let out before it has to look again."""
        self._looks = False

    def told(self, size: int) -> None:
        """So much was let out."""
        self._until_look -= size
        if self._until_look < 0 and not self._looks:
            self._looks = True
            # Not before the loop has offered it to the kernel: what is taken at once is nobody's burden.
            self._service.loop.call_soon(self.look)

    def look(self) -> None:
        """Close who reads least until the rest is within the limit."""
        self._looks = False
        limit = self._service.limits.total_output
        unread = {one: one.unread() for one in self._service.connections}
        total = sum(unread.values())
        # Sorted once: to find the worst anew for each that goes would cost a look at all of them each time.
        worst = heaviest_first(unread, unread.__getitem__)
        while total > limit:
            total -= self._end(*next(worst))
        # A limit that is nearly reached is looked at again after an eighth more, not with every answer.
        self._until_look = max(limit - total, limit // 8)

    @staticmethod
    def _end(connection: Connection, size: int) -> int:
        log.warning("connection does not read its replies", extra={"peer": connection.peer, "bytes": size})
        connection.abort()
        return size
