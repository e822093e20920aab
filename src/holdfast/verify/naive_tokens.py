"""Tokens of a naive Redlock: `INCR` on every node that answers, the highest of a majority is the token.

A control without servers: nodes, clients and what is out of reach are drawn from the seed. The
nodes' counters drift apart, so the highest of one majority need not be above that of another.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from holdfast.verify.history import Call

NODES, MAJORITY = 5, 3
GRANTS = 60
NAME = "verify/naive-tokens"


def grants(seed: int) -> Iterator[Call]:
    """Acquires and releases, one after the other: nobody ever holds the lock together with another."""
    rng = random.Random(f"naive {seed}")
    counters = [0] * NODES
    for number in range(GRANTS):
        reached = rng.sample(range(NODES), rng.randint(MAJORITY, NODES))
        for node in reached:
            counters[node] += 1
        token, at, process = max(counters[node] for node in reached), float(number), f"c{number % 3 + 1}"
        facts: dict[str, Any] = {"name": NAME, "owner": process, "claim": f"n{number}", "token": token}
        yield Call(f"a{number}", "acquire", process, at, at + 0.1, "ok", deadline=at + 0.9, **facts)
        yield Call(f"r{number}", "release", process, at + 0.5, at + 0.6, "ok", **facts)
