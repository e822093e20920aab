"""Pauses between tries."""

from __future__ import annotations

from itertools import islice

from holdfast.core.backoff import full_jitter


def test_the_bound_doubles_up_to_the_most() -> None:
    assert list(islice(full_jitter(0.1, 0.5, lambda low, high: high), 5)) == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_a_pause_is_drawn_from_the_whole_range_down_to_nothing() -> None:
    assert list(islice(full_jitter(0.1, 0.5, lambda low, high: low), 3)) == [0.0, 0.0, 0.0]
