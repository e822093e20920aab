"""An interrupt between two lines leaves nothing behind in the client."""

from __future__ import annotations

from contextlib import suppress

import pytest

import holdfast
from holdfast.locks import acquire


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


def test_a_release_that_was_interrupted_twice_is_finished_by_the_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.connect("memory://twice", ttl=1.0) as locks, holdfast.connect("memory://twice") as other:
        grant = locks.lock("k").acquire()
        with monkeypatch.context() as interrupted:
            interrupted.setattr(locks._core.verbs, "release", interrupt)
            interrupted.setattr(locks._core, "drop", interrupt)
            with pytest.raises(KeyboardInterrupt):
                grant.release()
        with pytest.raises(holdfast.NotHeld):
            grant.release()

        other.lock("k", wait=5.0).acquire().release()


def test_nothing_is_lost_when_what_was_left_is_withdrawn_and_that_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with holdfast.connect("memory://left", ttl=1.0) as locks, holdfast.connect("memory://left") as other:
        leave_behind(locks, monkeypatch)
        with monkeypatch.context() as interrupted:
            interrupted.setattr(locks._core, "drop", interrupt)
            with pytest.raises(KeyboardInterrupt):
                locks.lock("k").acquire()

        other.lock("k", wait=5.0).acquire().release()


@pytest.mark.parametrize("kind", ["lock", "semaphore"])
def test_an_owner_does_not_wait_for_what_its_interrupted_call_has_left(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with holdfast.connect(f"memory://{kind}", ttl=60.0) as locks:
        leave_behind(locks, monkeypatch, kind)
        taken = locks.lock("k") if kind == "lock" else locks.semaphore("k", 1)
        taken.acquire(wait=1.0).release()


def leave_behind(locks: holdfast.Client, monkeypatch: pytest.MonkeyPatch, kind: str = "lock") -> None:
    """Be interrupted after the engine has granted something, and again before that is withdrawn."""
    locks.lock("warm").acquire().release()
    with monkeypatch.context() as interrupted:
        interrupted.setattr(acquire, "keep", interrupt)
        interrupted.setattr(acquire, "undo", interrupt)
        with pytest.raises(KeyboardInterrupt):
            (locks.lock("k") if kind == "lock" else locks.semaphore("k", 1)).acquire()


def interrupt(*_: object) -> None:
    """What is called when Ctrl-C comes."""
    raise KeyboardInterrupt
