"""What has to survive a power cut is flushed on every system in the way that reaches the disk itself."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.fence import FileFence
from holdfast.runtime import disk

SOURCE = Path(disk.__file__).parents[1]
MACOS_NUMBER = 51
"""Of F_FULLFSYNC there. Linux has no such call and refuses it with EINVAL."""


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was flushed in macOS's way, by name; an fsync alone fails the test."""
    names: list[str] = []
    real = fcntl.fcntl

    def full_sync(file: int, number: int, *more: int) -> int:
        if number != MACOS_NUMBER:
            return real(file, number, *more)
        names.append(Path(os.readlink(f"/proc/self/fd/{file}")).name)
        return 0

    def only_fsync(file: int) -> None:
        raise AssertionError("macOS would leave this in the disk's cache")

    monkeypatch.setattr(disk, "FULL_SYNC", MACOS_NUMBER)
    monkeypatch.setattr(fcntl, "fcntl", full_sync)
    monkeypatch.setattr(os, "fsync", only_fsync)
    return names


def test_all_that_a_file_fence_writes_reaches_the_disk_on_macos(tmp_path: Path, flushed: list[str]) -> None:
    fence = FileFence()
    fence.write(tmp_path / "report", "text", 17)
    with fence.open(tmp_path / "log", 18) as log:
        log.write("line\n")

    assert {tmp_path.name, ".report.fence", ".log.fence", "log"} <= set(flushed)
    assert [name for name in flushed if "report" in name and name != ".report.fence"], flushed


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOTTY, errno.EINVAL])
def test_where_a_file_system_has_no_full_flush_fsync_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refused(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    synced: list[int] = []
    monkeypatch.setattr(disk, "FULL_SYNC", MACOS_NUMBER)
    monkeypatch.setattr(fcntl, "fcntl", refused)
    monkeypatch.setattr(os, "fsync", synced.append)
    with (tmp_path / "file").open("w") as file:
        disk.sync(file.fileno())

        assert synced == [file.fileno()]


def test_a_disk_that_fails_is_not_asked_in_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(disk, "FULL_SYNC", MACOS_NUMBER)
    monkeypatch.setattr(fcntl, "fcntl", broken)
    with (tmp_path / "file").open("w") as file, pytest.raises(OSError, match="Input/output"):
        disk.sync(file.fileno())


def calls_of_fsync() -> Iterator[str]:
    for path in sorted(SOURCE.rglob("*.py")):
        if "os.fsync(" in path.read_text() or "os.fdatasync(" in path.read_text():
            yield str(path.relative_to(SOURCE))


def test_there_is_one_way_to_flush() -> None:
    assert list(calls_of_fsync()) == ["runtime/disk.py"]
