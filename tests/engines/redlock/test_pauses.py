"""A waiter leaves the nodes alone for longer and longer, in virtual time."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast.simulate.acts import Use, running
from holdfast.simulate.redlock import Node, RedlockWorld
from holdfast.simulate.simulation import quiet


def test_a_waiter_tries_again_after_pauses_that_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: Counter[str] = Counter()
    handle = Node.redlock_enter

    def counted(self: Node, claim: str, *args: str) -> list[object]:
        tries[claim] += 1
        return handle(self, claim, *args)

    monkeypatch.setattr(Node, "redlock_enter", counted)
    world = RedlockWorld(1)
    with quiet():
        Use(0.0, "A", "k", 6.0).perform(world, 0)
        world.world.run(0.1)
        Use(0.1, "B", "k", 0.1).perform(world, 1)
        while running(world):
            world.world.run(world.world.time + 0.1)
        world.close()

    # Six seconds of pauses of 0.15 s on average, once they have grown to their longest: about 40, on five nodes.
    assert 20 * 5 < tries["B.1-1"] < 70 * 5
    assert not tries.keys() - {"A.1-1", "B.1-1"}
