"""An interrupt between two lines leaves nothing behind in the client."""

from __future__ import annotations

from contextlib import suppress

import pytest

import holdfast


class Interrupting(set[str]):
    """An interrupt comes as soon as something was added."""

    def add(self, element: str) -> None:
        super().add(element)
        raise KeyboardInterrupt


def test_an_interrupt_as_a_wait_begins_leaves_the_keeper_nothing_to_sweep_for() -> None:
    with holdfast.connect("memory://begun") as holder, holdfast.connect("memory://begun") as locks:
        locks.lock("warm").acquire().release()
        locks._core.waiting = Interrupting()
        with holder.lock("k"), pytest.raises(KeyboardInterrupt), suppress(holdfast.NotAcquired):
            locks.lock("k").acquire(wait=5.0)

        assert locks._core.waiting == set()
        assert holder.list() == []
