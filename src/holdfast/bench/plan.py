"""How long and how often to measure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """What every measure is told. Times are in seconds."""

    seconds: float = 1.0
    """How long one slice lasts: one subject, one round."""
    rounds: int = 5
    """How many slices each subject gets, in turns."""
    grants: int = 100
    """How many grants every waiter of a contest has to get, beside its first."""
    patience: float = 20.0
    """When a contest ends in which somebody never gets that many."""
    hand_offs: int = 50
    """How many hand-offs to a sleeping waiter make a slice."""
    hold: float = 0.005
    """For how long a lock is held before it goes to a sleeping waiter."""
    watch: float = 10.0
    """For how long the cost of holding is watched."""
