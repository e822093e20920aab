"""The server's disk is full."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import holdfast
from holdfast.verify.servers.postgres import PostgresServer
from holdfast.verify.servers.process import UNPRIVILEGED
from tests.engines.postgres.patience import eventually
from tests.faults.disks import SmallDisk, small_disk


def let_through(path: Path) -> None:
    """Let the server's user reach what lies there."""
    for folder in (path, *path.parents):
        if folder.owner() == pwd.getpwuid(os.getuid()).pw_name and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Where the lock table lies; the log of transactions has a disk of its own, as it should."""
    place = tmp_path / "disk"
    place.mkdir()
    let_through(tmp_path)
    with small_disk(place, "8m") as disk:
        yield disk


class CrampedServer(PostgresServer):
    """Its log of transactions lies on a small disk."""

    def __init__(self, disk: SmallDisk) -> None:
        super().__init__()
        self.disk, self.prefix = disk, disk.prefix

    def prepare(self) -> None:
        super().prepare()
        wal = self.folder / "data" / "pg_wal"
        shutil.move(wal, self.disk.reach / "wal")
        wal.symlink_to(self.disk.path / "wal")
        if os.getuid() == 0:
            user = pwd.getpwnam(UNPRIVILEGED)
            for path in (self.disk.reach / "wal", *(self.disk.reach / "wal").rglob("*")):
                os.chown(path, user.pw_uid, user.pw_gid)


def test_a_disk_that_is_full_of_transactions_stops_the_server_and_nothing_is_lost(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    let_through(tmp_path)
    with small_disk(place, "60m") as disk, CrampedServer(disk) as server:
        with holdfast.connect(server.url, ttl=300) as locks, holdfast.connect(server.url, ttl=300) as rival:
            held = locks.lock("held").acquire(wait=30.0)
            rival.list()
            disk.fill()
            with pytest.raises(psycopg.OperationalError):
                write_much(server)
            with pytest.raises(holdfast.EngineUnavailable):
                rival.lock("other").try_acquire()
            held.check()
            disk.make_room()
            eventually(lambda: comes_back(server, rival), within=60)

            assert rival.lock("held").try_acquire() is None
            held.release()
            with rival.lock("held").acquire(wait=30.0) as later:
                assert later.token > held.token


def write_much(server: PostgresServer) -> None:
    """More than there is room for: the server gives up."""
    with psycopg.connect(server.url, autocommit=True) as database:
        for _ in range(20):
            database.execute("SELECT pg_logical_emit_message(false, 'filler', repeat('x', 4000000))")


def comes_back(server: PostgresServer, client: holdfast.Client) -> bool:
    """Start the server if it has ended; whether it works."""
    server.relaunch()
    try:
        client.list()
    except holdfast.EngineUnavailable:
        return False
    return True


def test_a_full_disk_is_said_nothing_is_lost_and_tokens_go_on(server: PostgresServer, disk: SmallDisk) -> None:
    space = disk.reach / "space"
    space.mkdir(mode=0o700)
    if os.getuid() == 0:
        user = pwd.getpwnam(UNPRIVILEGED)
        os.chown(space, user.pw_uid, user.pw_gid)
    with psycopg.connect(server.url, autocommit=True) as database:
        database.execute(f"CREATE TABLESPACE small LOCATION '{space}'".encode())
        database.execute("CREATE ROLE cramped LOGIN SUPERUSER")
        database.execute("ALTER ROLE cramped SET default_tablespace = small")
    url = f"postgresql://cramped@127.0.0.1:{server.port}/postgres?schema=cramped"
    with holdfast.connect(url, ttl=60) as locks:
        held = locks.lock("held").acquire()
        disk.fill()
        taken: list[holdfast.Grant] = []
        refused: list[holdfast.EngineUnavailable] = []

        def full() -> bool:
            """Take locks with long notes until there is no room for one more."""
            try:
                taken.append(locks.lock(f"filler-{len(taken)}", note="x" * 4000).acquire(wait=2.0))
            except holdfast.EngineUnavailable as error:
                refused.append(error)
            return bool(refused)

        eventually(full)
        assert refused[0].outcome == "not done"
        assert "full" in str(refused[0])
        held.check()
        disk.make_room()

        held.release()
        again = locks.lock("held").acquire(wait=10.0)
        assert again.token > held.token
        for grant in [again, *taken]:
            grant.release()
    with psycopg.connect(server.url, autocommit=True) as database:
        database.execute("DROP SCHEMA cramped CASCADE")
        database.execute("DROP ROLE cramped")
        database.execute("DROP TABLESPACE small")
