"""A file that was put back to an earlier state in its place, by SQLite itself: no connection notices."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
from holdfast import LockLost
from tests.faults.children import eventually


class Backup:
    """What `.backup` and `.restore` of SQLite's shell do."""

    def __init__(self, path: Path) -> None:
        self.path, self._copy = path, path.with_suffix(".copy")

    def take(self) -> None:
        self._write(self.path, self._copy)

    def restore(self) -> None:
        self._write(self._copy, self.path)

    def _write(self, source: Path, target: Path) -> None:
        with closing(sqlite3.connect(source)) as from_, closing(sqlite3.connect(target, timeout=20.0)) as to:
            from_.backup(to)


@pytest.fixture
def backup(tmp_path: Path) -> Backup:
    return Backup(tmp_path / "locks.db")


@pytest.fixture
def locks(backup: Backup) -> Iterator[holdfast.Client]:
    with holdfast.connect(f"sqlite:///{backup.path}", ttl=1.5) as locks:
        yield locks


@pytest.fixture
def others(backup: Backup) -> Iterator[holdfast.Client]:
    with holdfast.connect(f"sqlite:///{backup.path}", ttl=1.5) as others:
        yield others


@pytest.mark.parametrize("is_held_again", [False, True])
def test_a_holder_hears_that_the_file_was_put_back(
    backup: Backup, locks: holdfast.Client, others: holdfast.Client, is_held_again: bool
) -> None:
    locks.lock("earlier").acquire().release()
    backup.take()
    grant = locks.lock("k").acquire()
    backup.restore()
    if is_held_again:
        second = others.lock("k").acquire(wait=10.0)

    eventually(grant.lost.is_set, "the loss was not reported")
    with pytest.raises(LockLost, match="older state"):
        grant.check()
    if is_held_again:
        second.release()


def test_a_renewal_of_a_grant_that_the_file_lost_says_so(backup: Backup) -> None:
    url = f"sqlite:///{backup.path}"
    with holdfast.connect(url, ttl=300.0) as locks, holdfast.connect(url, ttl=60.0) as others:
        locks.lock("earlier").acquire().release()
        backup.take()
        grant = locks.lock("k").acquire()
        backup.restore()

        with others.lock("k", wait=10.0), pytest.raises(LockLost, match="older state"):
            grant.renew()


def test_a_lock_that_was_given_back_since_does_not_stay_held(
    backup: Backup, locks: holdfast.Client, others: holdfast.Client
) -> None:
    given_back, kept = locks.lock("k").acquire(), locks.lock("kept").acquire()
    backup.take()
    given_back.release()
    backup.restore()

    others.lock("k").acquire(wait=10.0).release()
    kept.release()


def test_a_process_that_saw_a_token_gives_out_no_lower_one(backup: Backup, locks: holdfast.Client) -> None:
    locks.lock("k").acquire().release()
    backup.take()
    with locks.lock("k") as grant:
        former = grant.token
    backup.restore()

    with locks.lock("k") as grant:
        assert grant.token > former


def test_a_watch_hears_that_the_file_was_put_back(
    backup: Backup, locks: holdfast.Client, others: holdfast.Client
) -> None:
    with locks.watch("k") as events:
        backup.take()
        others.lock("k").acquire().release()
        assert [next(events).type for _ in range(2)] == ["granted", "released"]
        backup.restore()
        for _ in range(3):
            others.lock("k").acquire(wait=10.0).release()

        with pytest.raises(holdfast.HoldfastError, match="lost data"):
            next(events)
