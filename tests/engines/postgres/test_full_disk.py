"""The server's disk is full."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import holdfast
from holdfast.verify.servers.postgres import PostgresServer
from holdfast.verify.servers.process import UNPRIVILEGED
from tests.engines.postgres.patience import eventually
from tests.faults.disks import SmallDisk, small_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Where the lock table lies; the log of transactions has a disk of its own, as it should."""
    place = tmp_path / "disk"
    place.mkdir()
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == pwd.getpwuid(os.getuid()).pw_name and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    with small_disk(place, "8m") as disk:
        yield disk


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
