"""The pipes by which processes wake each other: none is left behind, none is taken from the living."""

from __future__ import annotations

import os
from pathlib import Path

import holdfast


def test_a_pipe_whose_process_died_before_its_session_was_on_record_is_cleared_away(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    with holdfast.connect(url) as first, first.lock("a"):
        living = set(os.listdir(tmp_path / "locks.db-wake"))
        os.mkfifo(tmp_path / "locks.db-wake" / "orphan")

        with holdfast.connect(url) as second, second.lock("b"):
            now = set(os.listdir(tmp_path / "locks.db-wake"))

    assert len(living) == 1
    assert living < now
    assert "orphan" not in now


def test_a_bell_that_was_closed_writes_into_nobody_elses_file(tmp_path: Path) -> None:
    locks = holdfast.connect(f"sqlite:///{tmp_path}/locks.db")
    with locks.lock("a"):
        bell = locks._core.start_keeper().verbs.bell
    locks.close()
    others = [(tmp_path / f"data{number}").open("wb", buffering=0) for number in range(20)]
    bell.set()
    sizes = [os.fstat(other.fileno()).st_size for other in others]
    for other in others:
        other.close()

    assert sizes == [0] * 20
