"""The embedded engine: a file, and no server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.verify.disks import SmallDisk
from holdfast.verify.target import Address, Target


class SqliteTarget(Target):
    """One file, on a small disk of its own if that is to be filled. Its clients are its servers."""

    name = "sqlite"
    disk_size = "16m"
    syncs = "fsync,fdatasync"

    def url(self, addresses: Sequence[Address]) -> str:
        place = self.disk_place()
        place.mkdir(exist_ok=True)
        return f"sqlite:///{place}/locks.db"

    def disk_place(self) -> Path:
        place = self.folder / "disk"
        place.mkdir(exist_ok=True)
        return place

    def on_disk(self, disk: SmallDisk) -> None:
        self.client_prefix = disk.prefix
