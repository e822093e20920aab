"""Nodes that did not answer are left alone for a while."""

from __future__ import annotations

from holdfast.core import quorum
from holdfast.runtime import clock

REST = 1.0
"""For how long a node that did not answer is left alone, so that it does not cost its limit every time."""


class Rests:
    """Which nodes are left alone for a while, known to all callers."""

    def __init__(self, count: int) -> None:
        self._until = [0.0] * count
        self._peers: dict[int, tuple[str, int]] = {}
        """By node: what its address has been resolved to."""

    def resting(self) -> frozenset[int]:
        """Who is left alone now. Nobody, if the others are no majority: then there is nothing to lose by asking."""
        now = clock.now()
        found = frozenset(node for node, until in enumerate(self._until) if now < until)
        return frozenset() if quorum.out_of_reach(len(found), len(self._until)) else found

    def failed(self, node: int) -> None:
        self._until[node] = clock.now() + REST

    def works(self, node: int, peer: tuple[str, int]) -> None:
        """A connection was made, to this address and port."""
        self._until[node] = 0.0
        self._peers[node] = peer

    def same(self) -> tuple[int, int] | None:
        """Two nodes that are one server, if there are any."""
        found: dict[tuple[str, int], int] = {}
        for node, peer in sorted(self._peers.copy().items()):
            if found.setdefault(peer, node) != node:
                return found[peer], node
        return None
