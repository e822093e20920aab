"""A long random walk through the crowd's rules: denser than what Hypothesis draws, and repeated by its seed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from tests.core.crowd import MODES, NAMES, Crowd

WEIGHTS = (30, 18, 8, 6, 4, 3, 3, 3, 3, 2, 1, 2)


def request(random: Random, names: Sequence[str]) -> dict[str, Any]:
    """One who asks for a lock or a permit; few names, so that most have to wait."""
    who = {"number": random.randrange(1_000), "owner": random.choice("xyz")}
    common = {"max_hold": random.choice((None, None, None, 2.0)), "waits": random.random() < 0.9}
    if random.random() < 0.4:
        limit = 3 if random.random() < 0.05 else 2
        return who | common | {"kind": "permit", "name": random.choice("pq"), "limit": limit}
    return who | common | {
        "kind": "lock", "name": random.choice(names), "mode": random.choice(MODES),
        "subtree": random.random() < 0.3, "reentrant": random.random() < 0.3,
    }  # fmt: skip


def stride(crowd: Crowd, random: Random, names: Sequence[str], weights: Sequence[float]) -> None:
    """One thing that happens."""
    number = random.randrange(1_000)
    match random.choices(range(12), weights)[0]:
        case 0:
            crowd.enter([request(random, names)])
        case 1 if crowd.claims:
            crowd.release(number)
        case 2 if crowd.claims:
            crowd.leave(number, random.random() < 0.3)
        case 3:
            crowd.pass_time(random.choice((0.5, 1.0, 2.0)), number)
        case 4 if crowd.claims:
            crowd.enter_again(number)
        case 5:
            crowd.sweep()
        case 6 if crowd.claims:
            crowd.hand_over(number)
        case 7 if crowd.reference.tickets:
            crowd.adopt(number, random.randrange(1_000), random.choice("xyz"))
        case 8:
            where = random.choice([*(("lock", name) for name in NAMES), ("permit", "p")])
            crowd.break_lock(where, random.random() < 0.5)
        case 9:
            crowd.withdraw_before_it_arrives(number)
        case 10:
            crowd.close(number)
        case 11:
            crowd.open(random.choice((3.0, 5.0, 8.0)))


def walk(crowd: Crowd, seed: int, steps: int) -> None:
    """Go, and look at everything after every stride."""
    random = Random(seed)
    # Every walk has its own habits: what is rare in one is common in another.
    names = random.sample(NAMES, random.randint(1, len(NAMES)))
    weights = [weight * random.choice((0.2, 1, 5)) for weight in WEIGHTS]
    try:
        crowd.begin()
        for _ in range(steps):
            stride(crowd, random, names, weights)
            crowd.no_cycle_survives()
            crowd.conflicting_claims_are_never_granted_together()
            crowd.a_replay_gives_an_equal_table_in_which_nobody_waits_behind_nothing()
    finally:
        crowd.teardown()
