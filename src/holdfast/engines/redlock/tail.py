"""The end of a release: the nodes whose answers are still to come when its caller goes on."""

from __future__ import annotations

from typing import Any

from holdfast.core import quorum
from holdfast.engines.redlock.ledger import Debt, Ledger

HELD = [[1, None]]
"""What a node says that had the lock for this claim, from which nobody has taken it away."""


class Tail:
    """Says when a release is over for its caller, and keeps account of the nodes that have not answered by then.

    They are owed the release from that moment on. An answer that comes later pays for its node; if none comes, or
    an error, or if nobody is left to read it, the heartbeats go on telling that node, as they do for silent ones.

    That a node may be behind is safe. It lets go of this claim alone, whenever it hears of it: whoever has taken the
    lock meanwhile has another claim id. Until then it says that the lock is taken, to an enter too that came over
    another connection, before the release. The majority that has confirmed the release is free and can grant, and
    those that are behind are too few to grant anything to anybody else. What the next holder lacks is their votes:
    its lock does not survive the loss of as many nodes.
    """

    __slots__ = ("_debt", "_ledger", "_majority", "_other", "_votes", "begun", "over")

    def __init__(self, ledger: Ledger, debt: Debt, nodes: int) -> None:
        self._ledger, self._debt, self._majority = ledger, debt, quorum.majority(nodes)
        self._votes, self._other = 0, False
        self.over = False
        """Whether the caller may go on: a majority had the lock, and nobody has said anything else."""
        self.begun = False
        """Whether it went on before all had confirmed: the others are gone after."""

    def hear(self, reply: Any) -> None:
        """A node has answered while the caller waits."""
        if reply != HELD:
            # Also a node that does not know the script: the others may not either.
            self._other = True
        self._votes += 1
        self.over = self._votes >= self._majority and not self._other

    def begin(self, nodes: frozenset[int]) -> None:
        """The caller goes on; these have not confirmed."""
        self._debt.nodes = nodes
        self._ledger.owe(self._debt)
        self.begun = True

    def came(self, node: int) -> None:
        """A node has confirmed after all. The keeper may be telling it at the same time, which does no harm."""
        self._debt.nodes -= {node}
        if not self._debt.nodes:
            self._ledger.paid(self._debt)

    def lost(self) -> None:
        """No further answer comes this way: the next heartbeat tells whoever has not confirmed."""
        self._debt.due = 0.0
