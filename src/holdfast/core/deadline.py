"""When a holder has to stop, on its own clock, so that it always stops first."""

from __future__ import annotations

MARGIN_SHARE = 0.01
MARGIN_FIXED = 0.05
SHORTEST_TTL = 0.1
LONGEST_TTL = 86_400.0
BEATS_PER_TTL = 3


def margin(ttl: float) -> float:
    """How much earlier than the engine the holder gives up: 1 % for drift, 50 ms for the scheduler."""
    return ttl * MARGIN_SHARE + MARGIN_FIXED


def deadline(sent_at: float, ttl: float) -> float:
    """The end of what the engine confirmed, counted from *before* the request was sent."""
    return sent_at + ttl - margin(ttl)


def beat_interval(ttl: float) -> float:
    """How long a session may go without a heartbeat: a third of what is left once the margin is off.

    For the shortest ttl a third of the whole would leave no room for a second try.
    """
    return (ttl - margin(ttl)) / BEATS_PER_TTL
