"""A lock server whose disk is full, fails to sync, or has lost what it was given."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hiredis
import pytest

from holdfast.verify.servers.process import ServerFailed
from tests.faults.children import eventually
from tests.faults.disks import SmallDisk, small_disk
from tests.faults.syscalls import failing
from tests.servers.lock_server import LockServer, Wire

NOTE = "x" * 1000
FULL = '"level": "warning", "event": "the disk is full: only what frees room is taken"'
ROOM = '"level": "info", "event": "there is room on the disk again"'


class OnDisk(LockServer):
    """A server whose store is in a folder of the test's choice."""

    def __init__(self, store: Path, disk: SmallDisk | None = None, **options: int) -> None:
        settings = "&".join(f"{name}={value}" for name, value in ({"ballast_mib": 1} | options).items())
        super().__init__(store=f"sqlite:///{store}?{settings}")
        self.prefix = disk.prefix if disk is not None else []

    def command(self) -> list[str]:
        return [*self.prefix, *super().command()]

    def ends(self) -> str:
        """Wait until it has ended by itself; all that it said."""
        process = self._process
        assert process is not None
        eventually(lambda: process.poll() is not None, "it goes on")
        assert process.returncode > 0, process.returncode
        self._process = None
        return self.log.read_text()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk", "6m") as mounted:
        yield mounted


def refused(answer: Any) -> bool:
    return isinstance(answer, hiredis.ReplyError) and str(answer).startswith("HFFULL")


def fill(wire: Wire, session: str, disk: SmallDisk) -> list[str]:
    """Take locks, fill the disk, and go on until the server takes no more; those that were granted."""
    granted: list[str] = []
    for number in range(8_000):
        if number == 50:
            disk.fill()
        claim = f"{session}-{number}"
        answer = wire("HF.ACQUIRE", claim, f"name-{number}", "NOTE", NOTE)
        if refused(answer):
            return granted
        assert answer[0] == "granted", answer
        granted.append(claim)
    raise AssertionError("the disk never ran full")


def test_on_a_full_disk_locks_can_be_given_back_but_not_taken_and_it_recovers_by_itself(disk: SmallDisk) -> None:
    with OnDisk(disk.path / "locks.db", disk) as server, server.speak() as wire:
        session = wire.open(600_000)
        granted = fill(wire, session, disk)

        for claim in granted[:20]:
            assert wire("HF.RELEASE", claim) == "OK"
        assert refused(wire("HF.ACQUIRE", f"{session}-new", "new"))
        assert refused(wire("HF.CELLSET", "c", "v"))
        assert wire("HF.RENEW", session)[0] == "open"
        assert wire("HF.LOOK", granted[-1])[0] == "granted"

        disk.make_room()

        eventually(lambda: not refused(wire("HF.ACQUIRE", f"{session}-new", "new")), "it did not recover")
        assert wire("HF.LOOK", f"{session}-new")[0] == "granted"


def test_a_full_disk_and_room_on_it_again_are_told_to_the_log_once_each(disk: SmallDisk) -> None:
    with OnDisk(disk.path / "locks.db", disk) as server, server.speak() as wire:
        session = wire.open(600_000)
        assert FULL not in server.log.read_text()
        fill(wire, session, disk)
        assert refused(wire("HF.ACQUIRE", f"{session}-new", "new"))
        assert (server.log.read_text().count(FULL), server.log.read_text().count(ROOM)) == (1, 0)

        disk.make_room()

        # Nobody has to ask for room.
        eventually(lambda: ROOM in server.log.read_text(), "it did not notice")
        assert wire("HF.ACQUIRE", f"{session}-new", "new")[0] == "granted"
        assert (server.log.read_text().count(FULL), server.log.read_text().count(ROOM)) == (1, 1)


def test_a_disk_that_is_full_at_the_start_is_told_to_the_log(disk: SmallDisk) -> None:
    with OnDisk(disk.path / "locks.db", disk) as server:
        with server.speak() as wire:
            wire.open(600_000)
        server.stop()
        disk.fill()
        server.start()

        assert server.log.read_text().count(FULL) == 1


def test_what_was_answered_on_a_full_disk_survives_a_kill(disk: SmallDisk) -> None:
    with OnDisk(disk.path / "locks.db", disk) as server:
        with server.speak() as wire:
            session = wire.open(600_000)
            secret = wire.secret
            granted = fill(wire, session, disk)
            for claim in granted[:20]:
                assert wire("HF.RELEASE", claim) == "OK"
        server.kill()
        server.start()
        with server.speak() as wire:
            assert wire("HF.RESUME", session, secret)[0] == "open"
            assert [wire("HF.LOOK", claim)[0] for claim in granted] == ["gone"] * 20 + ["granted"] * (len(granted) - 20)


def test_a_sync_that_fails_stops_the_server_before_it_answers(tmp_path: Path) -> None:
    with OnDisk(tmp_path / "locks.db") as server:
        with server.speak() as wire:
            session = wire.open()
            secret = wire.secret
            token = wire("HF.ACQUIRE", f"{session}-1", "first")[1]
            with failing(server.pid, "fsync,fdatasync"):
                wire.send("HF.ACQUIRE", f"{session}-2", "second")
                assert list(wire.rest()) == []
                said = server.ends()
        assert re.search(r"the server stops, start it again when the disk is well", said)

        server.start()
        with server.speak() as wire:
            assert wire("HF.RESUME", session, secret)[0] == "open"
            assert wire("HF.LOOK", f"{session}-1")[:2] == ["granted", token]
            assert wire("HF.ACQUIRE", f"{session}-3", "third")[1] > token


def test_without_the_fault_the_same_request_is_answered(tmp_path: Path) -> None:
    with OnDisk(tmp_path / "locks.db") as server, server.speak() as wire:
        session = wire.open()
        with failing(server.pid, "chown"):
            assert wire("HF.ACQUIRE", f"{session}-2", "second")[0] == "granted"


def test_a_torn_last_page_that_was_answered_is_noticed_at_the_start(tmp_path: Path) -> None:
    store = tmp_path / "locks.db"
    with OnDisk(store) as server:
        with server.speak() as wire:
            session = wire.open()
            for number in range(5):
                assert wire("HF.ACQUIRE", f"{session}-{number}", f"name-{number}")[0] == "granted"
        server.kill()
        log = Path(f"{store}-wal")
        log.write_bytes(log.read_bytes()[:-2048] + b"\xa5" * 2048)

        with pytest.raises(ServerFailed, match="ended at its start"):
            server.start()
        said = server.ends()
        assert "cannot be trusted" in said
        assert "was kept and answered: the end is lost" in said


def test_a_second_server_on_the_same_store_does_not_start(tmp_path: Path) -> None:
    with OnDisk(tmp_path / "locks.db") as server, server.speak() as wire:
        session = wire.open()
        second = OnDisk(tmp_path / "locks.db")
        try:
            with pytest.raises(ServerFailed, match="another server uses it"):
                second.start()
            second.ends()
        finally:
            second.close()
        assert wire("HF.ACQUIRE", f"{session}-1", "a")[0] == "granted"


def test_a_session_lives_on_over_a_restart_and_ends_a_ttl_later_if_nobody_comes(tmp_path: Path) -> None:
    with OnDisk(tmp_path / "locks.db") as server:
        with server.speak() as wire:
            session = wire.open(2_000)
            token = wire("HF.ACQUIRE", f"{session}-1", "a")[1]
        server.stop()
        server.start()
        with server.speak() as wire:
            rival = wire.open(60_000)
            assert wire("HF.ACQUIRE", f"{rival}-1", "a", "WAIT", 0)[0] == "refused"
            answer = wire("HF.ACQUIRE", f"{rival}-2", "a", "BLOCK")
            assert answer[0] == "granted"
            assert answer[1] > token


def test_it_stops_in_order_when_told_to(tmp_path: Path) -> None:
    with OnDisk(tmp_path / "locks.db") as server:
        process = server._process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        eventually(lambda: process.poll() is not None, "it goes on")
        assert process.returncode == 0
        server.start()
