"""The reserve for a full disk: what it says of itself is so, whoever takes and gives it at the same time."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from holdfast.runtime import clock
from holdfast.server.ballast import Ballast

WITHIN = 20.0


def test_a_ballast_that_is_given_while_it_is_taken_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ballast = Ballast(tmp_path / "locks.db", 4096, clock.now)
    ballast.give()
    giving = threading.Thread(target=ballast.give)
    allocate = os.posix_fallocate

    def allocate_slowly(file: int, start: int, size: int) -> None:
        allocate(file, start, size)
        giving.start()
        # Without a turn for each it would be done by then.
        giving.join(0.2)

    monkeypatch.setattr(os, "posix_fallocate", allocate_slowly)
    ballast.take()
    giving.join(WITHIN)

    assert not ballast.path.exists()
    assert ballast.short_of_room


def test_a_ballast_for_which_there_is_no_room_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ballast = Ballast(tmp_path / "locks.db", 4096, clock.now)

    def no_room(file: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", no_room)
        ballast.take()
    assert not ballast.path.exists()
    assert ballast.short_of_room

    ballast.take()

    assert ballast.path.stat().st_size == 4096
    assert not ballast.short_of_room


def test_without_a_file_to_look_with_a_full_disk_stays_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ballast = Ballast(tmp_path / "locks.db", 4096, clock.now)
    ballast.give()

    def no_file(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", no_file)
        ballast.take()
        assert ballast.short_of_room

    ballast.take()
    assert not ballast.short_of_room
