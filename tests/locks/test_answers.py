"""Whoever waits for others has its answer in time, and the right one, although the engine does not answer."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast
from holdfast.locks.barrier import BarrierFront
from tests.faults.children import eventually


@contextmanager
def busy(path: Path) -> Iterator[None]:
    """Nobody else can write to the file meanwhile."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


WAITS: dict[str, Callable[[holdfast.Client], object]] = {
    "latch": lambda locks: locks.latch("l", count=1).wait(0.2),
    "barrier": lambda locks: locks.barrier("b", parties=2).wait(0.2),
}


@pytest.mark.parametrize("what", WAITS)
def test_a_wait_ends_in_time_although_the_file_is_busy(tmp_path: Path, what: str) -> None:
    with holdfast.connect(f"sqlite:///{tmp_path}/locks.db", ttl=30.0) as locks:
        locks.lock("warm").acquire().release()
        with busy(tmp_path / "locks.db"):
            began = time.monotonic()
            with pytest.raises(holdfast.EngineUnavailable):
                WAITS[what](locks)
            took = time.monotonic() - began

    assert took < 4.0


def test_whoever_went_through_a_barrier_is_told_so_although_its_place_cannot_be_given_back_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holdfast.connect(f"sqlite:///{tmp_path}/locks.db", ttl=30.0) as locks:
        locks._core.call_limit = 0.3
        other = sqlite3.connect(tmp_path / "locks.db", isolation_level=None)
        passed = BarrierFront.passed

        async def then_busy(*args: object) -> int | None:
            generation = await passed(*args)  # type: ignore[arg-type]
            other.execute("BEGIN IMMEDIATE")
            return generation

        monkeypatch.setattr(BarrierFront, "passed", then_busy)

        assert locks.barrier("b", parties=1).wait() == 1
        other.execute("ROLLBACK")
        other.close()
        eventually(lambda: locks.list("b", kind="barrier") == [], "its place is kept")


WORDS: dict[str, tuple[Callable[[holdfast.Client], object], str]] = {
    "latch": (lambda locks: locks.latch("l", count=1).wait(0.01), "latch 'l' did not open within"),
    "barrier": (lambda locks: locks.barrier("b", parties=2).wait(0.01), "barrier 'b' was not filled within"),
    "semaphore": (lambda locks: locks.semaphore("s", limit=1).acquire(wait=0.01), "semaphore 's' was not granted"),
    "lock": (lambda locks: locks.lock("k").acquire(wait=0.01), "lock 'k' was not granted"),
}


@pytest.mark.parametrize("what", WORDS)
def test_a_wait_that_is_over_is_told_in_words_of_what_was_waited_for(what: str) -> None:
    wait, words = WORDS[what]
    with (
        holdfast.connect("memory://words") as other,
        holdfast.connect("memory://words") as locks,
        other.semaphore("s", limit=1),
        other.lock("k"),
        pytest.raises(holdfast.NotAcquired, match=words) as error,
    ):
        wait(locks)

    assert error.value.kind == what


def test_a_session_that_is_not_there_in_time_is_missed_with_its_cause(tmp_path: Path) -> None:
    with holdfast.connect(f"sqlite:///{tmp_path}/locks.db", ttl=30.0) as locks, busy(tmp_path / "locks.db"):
        locks._core.call_limit = 0.2
        with pytest.raises(holdfast.EngineUnavailable):
            locks.lock("k").acquire()
        locks._core.call_limit = 20.0
        try:
            with pytest.raises(holdfast.EngineUnavailable, match="in time; the last try: another process"):
                locks.lock("k").acquire(wait=0.01)
        finally:
            locks._core.call_limit = 0.2
