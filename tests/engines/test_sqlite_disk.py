"""The embedded engine on a disk that is full, read-only, or fails to sync."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.children import eventually
from tests.faults.disks import SmallDisk, small_disk
from tests.faults.puppet import Puppet
from tests.faults.syscalls import failing

NOT_DONE = ("EngineUnavailable", "not done")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk") as mounted:
        yield mounted


@pytest.fixture
def url(disk: SmallDisk) -> str:
    return f"sqlite:///{disk.path}/locks.db"


def fill_the_log(puppet: Puppet, disk: SmallDisk) -> dict[str, Any]:
    """Fill the disk, then take and give back until the write-ahead log has no room left either."""
    disk.fill()
    for number in range(3000):
        answer = puppet.do("acquire", f"filler-{number}", 0.0)
        if "error" in answer:
            return answer
        answer = puppet.do("release", f"filler-{number}")
        if "error" in answer:
            return answer
    raise AssertionError("the log never ran out of room")


def test_a_full_disk_refuses_new_locks_and_loses_nothing(url: str, disk: SmallDisk) -> None:
    with Puppet(url, prefix=disk.prefix) as puppet, Puppet(url, prefix=disk.prefix) as rival:
        before = puppet.takes("k")
        version = puppet.do("set_cell", "config", "kept")["version"]
        assert "refused" in rival.do("try_acquire", "k")

        full = fill_the_log(puppet, disk)

        assert (full["error"], full["outcome"]) == NOT_DONE, full
        assert "full" in full["message"]
        for answer in (rival.do("acquire", "new", 0.5), rival.do("set_cell", "config", "changed")):
            assert (answer["error"], answer["outcome"]) == NOT_DONE, answer
        assert puppet.do("get_cell", "config") | {"took": 0} == {"value": "kept", "version": version, "took": 0}
        assert puppet.do("look", "k")["valid"]

        disk.make_room()

        assert rival.takes("new", wait=5.0) > before
        assert rival.do("set_cell", "config", "changed")["version"] > version
        assert "refused" in rival.do("try_acquire", "k")
        assert puppet.do("release", "k")["released"]
        assert rival.takes("k", wait=5.0) > before


@pytest.mark.parametrize("comes_back", [True, False])
def test_what_is_held_on_a_full_disk_is_in_danger_and_then_lost_or_renewed(
    url: str, disk: SmallDisk, comes_back: bool
) -> None:
    with Puppet(url, 2.0, prefix=disk.prefix) as holder, Puppet(url, prefix=disk.prefix) as filler:
        token = holder.takes("k")
        filler.do("connect")
        fill_the_log(filler, disk)
        eventually(lambda: holder.do("look", "k")["in_danger"], "it was not in danger")
        assert holder.do("look", "k") | {"took": 0} == {"valid": True, "in_danger": True, "lost": False, "took": 0}

        if comes_back:
            disk.make_room()
            eventually(lambda: not holder.do("look", "k")["in_danger"], "it was not renewed")
            assert holder.do("look", "k")["valid"]
            assert not holder.do("wait_lost", "k", 2.5)["lost"]
            return
        assert holder.do("wait_lost", "k", 5.0)["lost"]
        assert holder.do("look", "k") | {"took": 0} == {"valid": False, "in_danger": False, "lost": True, "took": 0}
        disk.make_room()
        assert filler.takes("k", wait=5.0) > token


def test_a_disk_that_is_full_before_the_first_use_says_so(url: str, disk: SmallDisk) -> None:
    disk.fill()
    with Puppet(url, prefix=disk.prefix) as puppet:
        answer = puppet.do("connect")
        assert (answer["error"], answer["outcome"]) == NOT_DONE, answer
        disk.make_room()
        assert puppet.takes("k", wait=5.0) > 0


def test_a_read_only_disk_says_so_and_loses_nothing(url: str, disk: SmallDisk) -> None:
    with Puppet(url, prefix=disk.prefix) as puppet:
        before = puppet.takes("k")
        puppet.do("close")
    disk.remount("ro")
    with Puppet(url, prefix=disk.prefix) as puppet:
        answer = puppet.do("acquire", "k", 0.5)
        assert (answer["error"], answer["outcome"]) == NOT_DONE, answer
        assert "read-only" in answer["message"] or "may this process write there" in answer["message"]
        disk.remount("rw")
        assert puppet.takes("k", wait=5.0) > before


def test_a_sync_that_fails_leaves_the_outcome_unknown_and_tells_no_lie_afterwards(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    with Puppet(url) as puppet, Puppet(url) as rival:
        version = puppet.do("set_cell", "config", "first")["version"]
        token = puppet.takes("k")

        with failing(puppet.pid, "fdatasync,fsync"):
            answer = puppet.do("set_cell", "config", "second")
            assert (answer["error"], answer["outcome"]) == ("EngineUnavailable", "unknown"), answer
            # Locks are not synced: what rests on them is the bound, which is on disk already.
            assert puppet.do("look", "k")["valid"]
            seen = [reader.do("get_cell", "config") for reader in (puppet, rival)]

        assert seen[0]["value"] == seen[1]["value"] in ("first", "second")
        assert puppet.do("set_cell", "config", "third")["version"] > version
        assert rival.do("get_cell", "config")["value"] == "third"
        assert puppet.do("release", "k")["released"]
        assert rival.takes("k", wait=5.0) > token


def test_without_the_fault_the_same_write_succeeds(tmp_path: Path) -> None:
    with Puppet(f"sqlite:///{tmp_path}/locks.db") as puppet:
        puppet.do("set_cell", "config", "first")
        with failing(puppet.pid, "chown"):
            assert puppet.do("set_cell", "config", "second")["version"] > 0
