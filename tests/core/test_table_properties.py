"""The lock table under a random crowd, against the reference model.

`HOLDFAST_THOROUGH=1 pytest tests/core` runs long: for a change to the table itself.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.core.bounded import BoundedCrowd
from tests.core.crowd import Crowd
from tests.core.walk import walk

THOROUGH = bool(os.environ.get("HOLDFAST_THOROUGH"))

TestTheTableInMemory = Crowd.TestCase
TestTheTableInMemory.settings = settings(
    max_examples=8_000 if THOROUGH else 200,
    stateful_step_count=60 if THOROUGH else 40,
    deadline=None,
    # `make test` walks the same ways every time; `make marathon` looks for new ones.
    derandomize=not THOROUGH,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("seed", range(2_000 if THOROUGH else 60))
def test_a_long_walk_breaks_no_rule(seed: int) -> None:
    walk(Crowd(), seed, steps=150)


def test_steps_with_bounds_come_to_the_same_in_the_end() -> None:
    longest = 0
    for seed in range(2_000 if THOROUGH else 40):
        crowd = BoundedCrowd()
        walk(crowd, seed, steps=150)
        longest = max(longest, crowd.longest)
    assert longest > 2, "some command has left something over"
