"""Cells in ZooKeeper: a node each, written by compare-and-set on ZooKeeper's own version.

What users see as the version is the zxid of the write, which never comes again: ZooKeeper's own
versions start at 0 with a new node. A delete empties the node, which is removed a day later.
"""

from __future__ import annotations

import struct
import time
from functools import partial
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from holdfast.core.table.commands import CellValue, Mismatch
from holdfast.engines.zookeeper.asking import LinkOver
from holdfast.engines.zookeeper.link import Link
from holdfast.engines.zookeeper.part import Part
from holdfast.errors import EngineUnavailable
from holdfast.runtime import clock

_HEAD = struct.Struct("!Bd")
"""Whether there is a value, and for how many seconds it is kept; 0 for ever."""


def pack(value: bytes | None, keep: float | None) -> bytes:
    """A cell's node."""
    return _HEAD.pack(value is not None, keep or 0.0) + (value or b"")


def dead_since(data: bytes, stat: Any) -> float | None:
    """When a cell's value ended, by the server's clock in seconds; None if it has no end."""
    there, keep = _HEAD.unpack_from(data)
    written: float = stat.mtime / 1000
    return written if not there else written + keep if keep else None


class Seen:
    """ZooKeeper's own versions of the cells that were seen last, so that a write need not read first."""

    MOST = 1_000
    LONGEST = 3600.0
    """Much less than the day after which a node may be made anew, and count from 0 again."""

    def __init__(self) -> None:
        self._cells: dict[str, tuple[int, int, float]] = {}

    def note(self, path: str, version: int, own: int) -> None:
        """What a cell was at."""
        self._cells.pop(path, None)
        self._cells[path] = (version, own, clock.now())
        while len(self._cells) > self.MOST:
            self._cells.pop(next(iter(self._cells)), None)

    def known(self, path: str, version: int | None) -> int | None:
        """The own version to expect where users expect this one: -1 for any, None if it is not known."""
        if version is None:
            return -1
        last, own, at = self._cells.get(path, (0, 0, 0.0))
        return own if last == version and clock.now() - at < self.LONGEST else None


def _get(path: str, kazoo: Any) -> Any:
    return kazoo.get_async(path)


def _go_through(path: str, kazoo: Any) -> Any:
    """A transaction that changes nothing."""
    transaction = kazoo.transaction()
    transaction.check(path, -1)
    return transaction.commit_async()


class CellVerbs(Part):
    """Get and set."""

    async def _found(self, link: Link, path: str, until: float, fresh: bool) -> tuple[bytes | None, int, int | None]:
        """The value, its version, and ZooKeeper's own version of the node; None if there is no node.

        A server answers a read by itself, and may lag behind. What is to be `fresh` comes after a transaction that
        changes nothing, and has been through a majority.
        """
        get = partial(_get, path)
        if fresh:
            _, found = await self.read(link, until, partial(_go_through, self.layout.base), get)
        else:
            (found,) = await self.read(link, until, get)
        if isinstance(found, NoNodeError):
            return None, 0, None
        data, stat = found
        there, keep = _HEAD.unpack_from(data)
        # No clock has a say in whether it was deleted.
        if not there or (keep and stat.mtime / 1000 + keep <= time.time() + link.clock_offset):
            return None, 0, stat.version
        self.engine.seen.note(path, stat.mzxid, stat.version)
        return data[_HEAD.size :], stat.mzxid, stat.version

    async def cell_get(self, kind: str, name: str, until: float) -> CellValue:
        while True:
            link = await self.looking(until)
            try:
                value, version, _ = await self._found(link, self.layout.cell(kind, name), until, fresh=True)
                return CellValue(value, version)
            except LinkOver:
                continue

    async def cell_set(
        self, kind: str, name: str, value: bytes | None, version: int | None, keep: float | None, until: float
    ) -> CellValue | Mismatch:
        link = await self.looking(until)
        path = self.layout.cell(kind, name)
        try:
            known = None if version == 0 else self.engine.seen.known(path, version)
            if known is not None:
                written = await self._write(link, path, pack(value, keep), known, until)
                if written is not None:
                    return CellValue(value, written)
            fresh = False
            while True:
                _, current, own = await self._found(link, path, until, fresh)
                wrong, nothing = version is not None and version != current, own is None and value is None
                if (wrong or nothing) and not fresh:
                    # Only what has been through a majority is a reason to refuse.
                    fresh = True
                    continue
                if wrong:
                    return Mismatch(current)
                if nothing:
                    return CellValue(None, 0)
                fresh = True
                written = await self._write(link, path, pack(value, keep), own, until)
                if written is not None:
                    return CellValue(value, written)
        except LinkOver as over:
            raise EngineUnavailable(self.address, "the session ended before the answer came", "unknown") from over

    async def _write(self, link: Link, path: str, data: bytes, own: int | None, until: float) -> int | None:
        """The zxid of the write; None if somebody else was faster."""
        kazoo = link.kazoo
        await self.ready(link, until)
        if own is not None:
            done = await self.answer(link, until, kazoo.set_async(path, data, own))
            if isinstance(done, BadVersionError | NoNodeError):
                return None
            zxid: int = done.mzxid
            self.engine.seen.note(path, zxid, done.version)
            link.clock_offset = done.mtime / 1000 - time.time()
            return zxid
        done = await self.answer(link, until, kazoo.create_async(path, data, include_data=True))
        if isinstance(done, NoNodeError):
            if not link.base:
                await self.make_namespace(link, until)
                await self.read_base(link, until)
            await self.make_paths(link, [path.rpartition("/")[0]], until)
            return None
        if isinstance(done, NodeExistsError):
            return None
        zxid = done[1].czxid
        self.engine.seen.note(path, zxid, done[1].version)
        link.clock_offset = done[1].mtime / 1000 - time.time()
        return zxid
