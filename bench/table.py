"""Transitions a second of the lock table alone: `python bench/table.py [SECONDS]`."""

from __future__ import annotations

import statistics
import sys

from holdfast.bench.table import transitions

ROUNDS = 5


def main(seconds: float) -> None:
    """Print each round, then the median."""
    found = [transitions(seconds)["transitions_per_s"] for _ in range(ROUNDS)]
    print(" ".join(f"{rate:,.0f}" for rate in found))
    print(f"median {statistics.median(found):,.0f} transitions/s")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
