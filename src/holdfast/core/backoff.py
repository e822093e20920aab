"""How long to wait before the next try: exponential, with full jitter."""

from __future__ import annotations

from collections.abc import Callable, Iterator


def full_jitter(first: float, most: float, uniform: Callable[[float, float], float]) -> Iterator[float]:
    """Pauses drawn from 0 to a bound that doubles from `first` to `most`.

    Full jitter spreads those who failed together; a fixed pause would bring them back together.
    """
    bound = first
    while True:
        yield uniform(0.0, bound)
        bound = min(bound * 2, most)
