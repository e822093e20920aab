"""What strangers can make the log say: so much a second one by one, the rest as a count."""

from __future__ import annotations

import logging

log = logging.getLogger("holdfast.server")

MOST = 10
"""How many are told one by one, a second."""


class Complaints:
    """What was wrong with those who are nobody yet. They may come as often as they like; the log must not fill."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, event: str, level: int = logging.WARNING, **details: object) -> None:
        """Tell the log, unless it was told of many this second."""
        self._count += 1
        if self._count <= MOST:
            log.log(level, event, extra=details)

    def second_over(self) -> None:
        """Say how many were left out, and begin to count anew."""
        left_out, self._count = self._count - MOST, 0
        if left_out > 0:
            log.warning("more of the same were not logged", extra={"left_out": left_out})
