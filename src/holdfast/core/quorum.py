"""Counting votes of independent nodes: what a majority is, which token it confirms, and how long that is good for."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.core.deadline import margin

FEWEST_NODES = 3
"""With two nodes the loss of one stops everything, so they are worse than one."""


def majority(nodes: int) -> int:
    """How many of so many nodes are more than half: two such sets always have a node in common."""
    return nodes // 2 + 1


def reached(votes: int, nodes: int) -> bool:
    """Whether so many votes are a majority."""
    return votes >= majority(nodes)


def out_of_reach(against: int, nodes: int) -> bool:
    """Whether so many nodes against it leave no majority, whatever the others say."""
    return nodes - against < majority(nodes)


def token_of(proposals: Collection[int]) -> int:
    """The token that a grant gets: the highest proposal of the nodes that granted."""
    return max(proposals)


def confirmed(proposals: Collection[int], nodes: int) -> bool:
    """Whether a majority has proposed just that token: then each of them has it on record already.

    Otherwise it has to be written back, and only a node that this claim still holds may count.
    """
    token = token_of(proposals)
    return reached(sum(proposal == token for proposal in proposals), nodes)


def left(ttl: float, started: float, now: float) -> float:
    """For how long a grant is good whose first request was sent at `started`; the clocks may drift."""
    return ttl - (now - started) - margin(ttl)
