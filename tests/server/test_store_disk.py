"""The store on a disk that runs full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.table import apply
from holdfast.core.table.commands import Command, Enter, Open, Release
from holdfast.core.table.rows import Session
from holdfast.model import Claim
from holdfast.runtime import clock
from holdfast.server.ballast import EVERY
from holdfast.server.sqlite_store import SqliteStore
from holdfast.server.store import StoreFull, StoreRefused
from tests.faults.disks import SmallDisk, small_disk

PATIENCE = 20.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk", "8m") as mounted:
        yield mounted


class Clock:
    """The boot clock, and a way to let time pass."""

    ahead = 0.0

    def __call__(self) -> float:
        return clock.now() + self.ahead


class Served:
    """A table and its store, as a server has them."""

    def __init__(self, folder: Path, ballast_mib: int = 1) -> None:
        self.clock = Clock()
        self.store = SqliteStore(folder / "locks.db", ballast_mib=ballast_mib, boot_clock=self.clock)
        self.table = self.store.load()
        self.taken = 0

    async def do(self, command: Command) -> None:
        outcome = apply(command, self.store.now(), self.table.answer, self.table.put)
        await self.store.keep(outcome.changes)

    def claim(self, number: int) -> Claim:
        return Claim(f"s-{number}", "s", "s/x", "lock", f"name-{number}", note="x" * 2000)

    async def take(self) -> None:
        await self.do(Enter(self.claim(self.taken)))
        self.taken += 1

    async def release(self, number: int) -> None:
        await self.do(Release(self.claim(number)))


async def until_it_is_full(served: Served, disk: SmallDisk) -> None:
    disk.fill()
    for _ in range(3_000):
        await served.take()
        if not served.store.has_room():
            return
    raise AssertionError("the disk never ran full")


async def test_a_full_disk_gives_the_ballast_for_those_who_let_go(disk: SmallDisk) -> None:
    served = Served(disk.reach)
    await served.do(Open(Session("s", 1e6, 0.0)))

    await until_it_is_full(served, disk)

    assert not (disk.reach / "locks.db-ballast").exists()
    for number in range(30):
        await served.release(number)
    held = set(served.table.rows)
    served.store.close()
    again = Served(disk.reach)
    assert set(again.table.rows) == held
    again.store.close()


async def test_it_goes_on_by_itself_when_there_is_room(disk: SmallDisk) -> None:
    served = Served(disk.reach)
    await served.do(Open(Session("s", 1e6, 0.0)))
    await until_it_is_full(served, disk)
    served.clock.ahead += EVERY
    assert not served.store.has_room()

    disk.make_room()
    served.clock.ahead += EVERY

    assert served.store.has_room()
    assert (disk.reach / "locks.db-ballast").stat().st_size == 1 << 20
    await served.take()
    served.store.close()


async def test_a_batch_without_room_is_refused_whole_and_the_table_is_as_before(disk: SmallDisk) -> None:
    served = Served(disk.reach)
    await served.do(Open(Session("s", 1e6, 0.0)))
    kept = set[str]()
    disk.fill()
    refused: StoreFull | None = None
    while refused is None and len(kept) < 6_000:
        kept = set(served.table.rows)
        try:
            await served.take()
        except StoreFull as error:
            refused = error
    assert "full" in str(refused)

    served.table = served.store.load()
    assert set(served.table.rows) == kept

    disk.make_room()
    await served.release(0)
    await served.take()
    kept = set(served.table.rows)
    served.store.close()
    again = Served(disk.reach)
    assert set(again.table.rows) == kept
    again.store.close()


async def test_a_disk_that_is_full_at_the_start_is_named(disk: SmallDisk) -> None:
    disk.fill()
    with pytest.raises(StoreRefused, match="full"):
        Served(disk.reach)
    disk.make_room()
    Served(disk.reach).store.close()


async def test_a_store_starts_on_a_disk_that_has_become_full_by_its_ballast(disk: SmallDisk) -> None:
    served = Served(disk.reach)
    await served.do(Open(Session("s", 1e6, 0.0)))
    for _ in range(5):
        await served.take()
    served.store.close()
    disk.fill()
    again = Served(disk.reach)
    assert len(again.table.rows) == 5
    assert not again.store.has_room()
    for number in range(5):
        await again.release(number)
    again.store.close()
