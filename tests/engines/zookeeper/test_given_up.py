"""What a waiter that gave up costs: nothing, neither then nor when the one before it goes."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast


def watchers(locks: holdfast.Client) -> list[Any]:
    """Whoever is called back when some node changes."""
    (member,) = locks._core.verbs.ledger.members.values()  # type: ignore[attr-defined]
    kazoo = member.link.kazoo
    return [one for kept in (kazoo._child_watchers, kazoo._data_watchers) for each in kept.values() for one in each]


def lock_of(locks: holdfast.Client, kind: str) -> Any:
    return locks.lock("k") if kind == "lock" else locks.semaphore("k", limit=1)


@pytest.mark.parametrize("kind", ["lock", "semaphore"])
def test_waiters_that_gave_up_are_forgotten(url: str, kind: str) -> None:
    with holdfast.connect(url) as locks, holdfast.connect(url) as rival:
        held = lock_of(rival, kind).acquire()
        assert lock_of(locks, kind).try_acquire() is None
        before = len(watchers(locks))
        for _ in range(5):
            with pytest.raises(holdfast.NotAcquired):
                lock_of(locks, kind).acquire(wait=0.05)

        assert len(watchers(locks)) == before
        held.release()


def test_watches_of_a_cell_that_are_over_are_forgotten(url: str) -> None:
    with holdfast.connect(url) as locks:
        latch = locks.latch("ready", count=2)
        latch.count_down()
        locks.lock("k").acquire().release()
        before = len(watchers(locks))
        for _ in range(5):
            with pytest.raises(holdfast.NotAcquired):
                latch.wait(wait=0.05)

        assert len(watchers(locks)) == before
