"""Giving back: what could not be confirmed is withdrawn by the keeper."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import holdfast
from holdfast.locks.hold import Entry, Hold
from tests.faults.children import eventually


def test_the_last_of_two_entries_that_are_released_at_once_is_withdrawn_if_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holdfast.connect(f"sqlite:///{tmp_path}/locks.db", ttl=30.0) as locks:
        lock = locks.lock("k", reentrant=True)
        first, second = lock.acquire(), lock.acquire()
        let_go = Hold.let_go

        def overtaken(hold: Hold, grant: Entry) -> bool | None:
            monkeypatch.setattr(Hold, "let_go", let_go)
            first.release()  # as another thread may, at this moment
            return let_go(hold, grant)

        monkeypatch.setattr(Hold, "let_go", overtaken)
        busy = sqlite3.connect(tmp_path / "locks.db", isolation_level=None)
        busy.execute("BEGIN IMMEDIATE")
        with pytest.raises(holdfast.EngineUnavailable):
            second.release()
        busy.execute("ROLLBACK")
        busy.close()

        eventually(lambda: locks.list() == [], "it stays held")


@contextmanager
def interrupted_at(number: int) -> Iterator[Callable[[], bool]]:
    """Raise KeyboardInterrupt at the so-manieth moment of a release, once; whether there were so many.

    A moment is a line of the recipe, or where a function of the hold begins or ends: an interrupt does not come
    elsewhere in those, which call nothing while they hold their lock.
    """
    left = number

    def count(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        recipe = frame.f_code.co_filename.endswith("/locks/release.py")
        if not recipe and not frame.f_code.co_filename.endswith("/locks/hold.py"):
            return None
        if event in (("line",) if recipe else ("call", "return")):
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield lambda: left <= 0
    finally:
        sys.settrace(before)


def test_an_interrupt_at_any_moment_of_an_inner_release_leaves_the_outer_entry_alone() -> None:
    with holdfast.connect("memory://inner") as locks:
        number, reached = 0, True
        while reached:
            number += 1
            outer = locks.lock("k", reentrant=True).acquire()
            inner = locks.lock("k", reentrant=True, on_lost=print).acquire()
            with suppress(KeyboardInterrupt), interrupted_at(number) as came, inner:
                pass
            reached = came()

            assert not inner.valid, f"interrupted at moment {number}"
            assert outer.valid, f"interrupted at moment {number}"
            assert outer._hold.entries == {outer._entry}, f"interrupted at moment {number}"
            assert outer._hold.on_lost == [], f"interrupted at moment {number}"
            outer.release()
            assert locks.list() == []

    assert number > 5


def test_an_inner_entry_that_is_released_twice_after_the_loss_leaves_the_outer_one_to_be_told() -> None:
    with holdfast.connect("memory://lost-twice") as locks:
        lock = locks.lock("k", reentrant=True)
        outer, inner = lock.acquire(), lock.acquire()
        locks.break_lock("k")
        with pytest.raises(holdfast.LockLost):
            inner.release()
        with pytest.raises(holdfast.NotHeld):
            inner.release()

        with pytest.raises(holdfast.LockLost):
            outer.release()
