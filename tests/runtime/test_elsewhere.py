"""What only Linux has is done without on other systems: each fallback, forced here."""

from __future__ import annotations

import asyncio
import importlib
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.cli import processes, waits
from holdfast.model import Party
from holdfast.runtime import clock, machine
from holdfast.server import descriptors
from holdfast.server.ballast import ZEROS, reserve
from holdfast.server.sqlite_store import SqliteStore
from tests.faults.children import eventually, state

SYSCTL = """#!/bin/sh
case "$2" in
  {key}) echo {value} ;;
  *) echo "unknown oid '$2'" >&2; exit 1 ;;
esac
"""


class System:
    """A machine without /proc, whose programs are those of a folder."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        folder.mkdir()
        patch.setattr(machine, "_PROC", str(folder / "proc"))
        patch.setattr(machine, "_MACHINE_IDS", ())
        patch.setattr(machine, "_SYSTEM_ENV", {"PATH": f"{folder}:/usr/bin:/bin", "LC_ALL": "C"})

    def has(self, program: str, script: str) -> None:
        path = self.folder / program
        path.write_text(script)
        path.chmod(0o755)

    def boots_as(self, boot: str) -> None:
        self.has("sysctl", SYSCTL.format(key="kern.bootsessionuuid", value=boot))


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    return System(tmp_path / "system", monkeypatch)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


@pytest.fixture
def macos_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clock of a Python that knows no CLOCK_BOOTTIME."""
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    importlib.reload(clock)
    yield
    monkeypatch.undo()
    importlib.reload(clock)


# The clock


@pytest.mark.usefixtures("macos_clock")
def test_without_a_boot_clock_the_monotonic_one_is_read() -> None:
    before = time.clock_gettime(time.CLOCK_MONOTONIC)
    assert before <= clock.now() <= time.clock_gettime(time.CLOCK_MONOTONIC)


# The boot


@pytest.mark.parametrize("key", ["kern.bootsessionuuid", "kern.boot_id"])
def test_without_proc_sysctl_tells_one_boot_from_the_next(system: System, key: str) -> None:
    system.has("sysctl", SYSCTL.format(key=key, value="FIRST-BOOT"))

    assert machine.boot_id() == "FIRST-BOOT"


def test_a_reboot_that_sysctl_tells_of_ends_all_sessions(system: System, url: str) -> None:
    system.boots_as("first")
    before = holdfast.connect(url)
    held = before.lock("k").acquire()
    system.boots_as("second")

    with holdfast.connect(url) as locks, locks.lock("k", wait=0.0) as grant:
        assert grant.token > held.token
    before.close()


def test_where_no_boot_can_be_told_the_file_is_refused_in_one_line(system: System, url: str) -> None:
    with pytest.raises(holdfast.EngineUnavailable, match=r"does not tell one boot from the next.*another engine"):
        holdfast.connect(url)


@pytest.mark.usefixtures("system")
def test_where_no_boot_can_be_told_each_start_of_a_server_counts_as_one(tmp_path: Path) -> None:
    async def start() -> None:
        store = SqliteStore(tmp_path / "locks.db", ballast_mib=0)
        store.load()
        boots.append(store._boot)
        store.close()

    boots: list[str] = []
    for _ in range(2):
        asyncio.run(start())

    assert len(set(boots)) == 2


# The machine


def test_without_a_machine_id_the_system_is_asked_for_its_host_uuid(system: System) -> None:
    system.has("sysctl", SYSCTL.format(key="kern.hostuuid", value="THIS-ONE"))

    assert machine.machine_id() == "THIS-ONE"


@pytest.mark.usefixtures("system")
def test_without_any_id_a_machine_is_known_by_its_host_name() -> None:
    assert machine.machine_id() == f"host:{socket.gethostname()}"


@pytest.mark.usefixtures("system")
def test_macos_is_asked_by_a_call_of_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        def __init__(self, _: object) -> None: ...

        def gethostuuid(self, found: Any, _: object) -> int:
            found[:] = range(16)
            return 0

    monkeypatch.setattr("ctypes.CDLL", Library)

    assert machine.machine_id() == bytes(range(16)).hex()


# Time namespaces


@pytest.mark.usefixtures("system")
def test_without_namespaces_of_time_there_is_one() -> None:
    assert machine.time_namespace() == ""


# File systems


@pytest.mark.parametrize(
    ("listed", "refused"),
    [
        ("//ann@nas/share on {folder} (smbfs, nodev, nosuid, mounted by ann)", "smbfs"),
        ("nas:/share on {folder} (nfs)", "nfs"),
        ("/dev/disk3s1 on {folder} (apfs, local, journaled)", None),
        ("map auto_home on /nowhere (autofs, automounted)\nodd line", None),
    ],
)
def test_without_proc_the_list_of_mounts_tells_the_file_system(
    system: System, url: str, tmp_path: Path, listed: str, refused: str | None
) -> None:
    system.boots_as("first")
    system.has("mount", f"#!/bin/sh\ncat <<'END'\n/dev/disk1 on / (apfs)\n{listed.format(folder=tmp_path)}\nEND\n")

    if refused is None:
        holdfast.connect(url).close()
    else:
        with pytest.raises(holdfast.EngineUnavailable, match=rf"network file system \({refused}\)"):
            holdfast.connect(url)


# Processes


@pytest.fixture
def without_proc(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ps` is all there is. It reads the real /proc, because this machine may have no `ps`."""
    monkeypatch.setattr(processes, "PROC", str(system.folder))
    system.has(
        "ps",
        """#!/bin/sh
if [ "$1" = -p ]; then set -- "/proc/$2/stat"; else set -- /proc/[0-9]*/stat; fi
sed -E 's/^([0-9]+) [(].*[)] (.) ([0-9]+) ([0-9]+) .*/ \\1 \\3 \\4 \\2+/' "$@" 2>/dev/null; true
""",
    )


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"], process_group=0) as process:
        yield process
        process.kill()


@pytest.mark.usefixtures("without_proc")
def test_without_proc_ps_tells_that_a_holder_is_stopped(sleeper: subprocess.Popen[bytes]) -> None:
    party = Party("c", "o", "app", socket.gethostname(), sleeper.pid, "main", "", 1.0, 1.0, "exclusive")
    assert waits.state_of(party) == ""

    sleeper.send_signal(signal.SIGSTOP)
    eventually(lambda: state(sleeper.pid) == "T", "it does not stop")

    assert f"process {sleeper.pid} is stopped" in waits.state_of(party)


@pytest.mark.usefixtures("without_proc")
def test_without_proc_ps_tells_whether_a_group_has_ended(sleeper: subprocess.Popen[bytes]) -> None:
    found = processes.find(sleeper.pid)
    assert found is not None
    assert (found.group, processes.is_empty(sleeper.pid)) == (sleeper.pid, False)
    assert processes.descends_from(found, os.getpid())

    sleeper.kill()
    eventually(lambda: state(sleeper.pid) == "Z", "it does not end")

    assert processes.is_empty(sleeper.pid)
    assert not processes.is_alive(sleeper.pid)


def test_a_group_of_which_nothing_can_be_told_does_not_count_as_ended(
    system: System, monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    monkeypatch.setattr(processes, "PROC", str(system.folder))
    system.has("ps", "#!/bin/sh\nexit 1\n")

    assert not processes.is_empty(sleeper.pid)


# The server


def test_without_posix_fallocate_room_is_reserved_with_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    size = len(ZEROS) + 4096
    with open(tmp_path / "ballast", "w+b") as file:
        for _ in range(2):
            reserve(file.fileno(), size)
        found = os.fstat(file.fileno())

    assert found.st_size == size
    assert found.st_blocks * 512 >= size


def test_a_limit_of_open_files_that_the_system_does_not_grant_is_no_reason_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int]] = []

    def set_limit(_: int, limits: tuple[int, int]) -> None:
        asked.append(limits)
        if limits[0] == resource.RLIM_INFINITY:
            raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    descriptors.raise_limit()

    assert asked[-1] == (descriptors.MACOS_MOST, resource.RLIM_INFINITY)
