"""How much pipelined requests may do in one turn of the loop, all connections together."""

from __future__ import annotations

from holdfast.server.batches import Batches

MOST_PLAIN = 4_000
"""Plain requests in one turn, beside those that come alone: about 15 ms."""
MOST_READ = 4_000
"""Pipelined requests that are taken apart in one turn, and those of one connection more: some milliseconds."""


class Pipelines:
    """Counts, and says when the rest has to wait for another turn."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._plain = self._read = 0

    def begin_turn(self) -> None:
        """A turn is over, and the next one begins."""
        self._plain = self._read = 0

    def did(self, plain: int) -> None:
        """So many plain requests were carried out."""
        self._plain += plain

    def took_apart(self, requests: int) -> None:
        """So many requests that came together were taken apart."""
        self._read += requests
        self._batches.gather()

    @property
    def have_done_enough(self) -> bool:
        """Whether the other plain requests wait."""
        return self._plain >= MOST_PLAIN or self._batches.is_behind

    @property
    def have_read_enough(self) -> bool:
        """Whether what else arrives is taken apart later."""
        return self._read >= MOST_READ
