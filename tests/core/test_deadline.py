"""The holder stops first, and has time for several heartbeats before."""

from __future__ import annotations

import pytest

from holdfast.core import deadline


def test_the_deadline_counts_from_the_sending_and_comes_before_the_engine_lets_go() -> None:
    assert deadline.deadline(100.0, 10.0) == pytest.approx(109.85)


@pytest.mark.parametrize("ttl", [deadline.SHORTEST_TTL, 1.0, 10.0, deadline.LONGEST_TTL])
def test_three_heartbeats_fit_before_the_deadline(ttl: float) -> None:
    assert deadline.beat_interval(ttl) > 0
    assert deadline.beat_interval(ttl) * 3 <= deadline.deadline(0.0, ttl) + 1e-9
    assert deadline.beat_interval(ttl) <= ttl / 3
