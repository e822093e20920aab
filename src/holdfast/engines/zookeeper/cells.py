"""Cells in ZooKeeper: a node each, written by compare-and-set on ZooKeeper's own version.

What users see as the version is made from the zxid of the write, which never comes again, as a token is, so
that it grows as tokens do: ZooKeeper's own versions start at 0 with a new node. A base that is raised
raises the versions of all that is there: an earlier one is never met again, because a cell's zxid does
not go back. A delete empties the node, which is removed a day later.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from holdfast.core.table.commands import CellValue, Mismatch
from holdfast.engines.zookeeper.asking import Dropped, LinkOver
from holdfast.engines.zookeeper.link import Link
from holdfast.engines.zookeeper.part import Part
from holdfast.errors import EngineFailure
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
        self._cells: dict[str, tuple[int, int, int, float]] = {}

    def note(self, path: str, link: Link, version: int, own: int) -> None:
        """What a cell was at."""
        self._cells.pop(path, None)
        self._cells[path] = (link.session_id, version, own, clock.now())
        while len(self._cells) > self.MOST:
            self._cells.pop(next(iter(self._cells)), None)

    def known(self, path: str, link: Link, version: int | None) -> int | None:
        """The own version to expect where users expect this one: -1 for any, None if it is not known.

        What was seen in another session is not: an ensemble that was restored counts from an earlier number.
        """
        if version is None:
            return -1
        session, last, own, at = self._cells.get(path, (0, 0, 0, 0.0))
        known = session == link.session_id and last == version and clock.now() - at < self.LONGEST
        return own if known else None


def _get(path: str, kazoo: Any) -> Any:
    return kazoo.get_async(path)


def _set(path: str, data: bytes, own: int, kazoo: Any) -> Any:
    return kazoo.set_async(path, data, own)


def _create(path: str, data: bytes, kazoo: Any) -> Any:
    return kazoo.create_async(path, data, include_data=True)


def _go_through(path: str, kazoo: Any) -> Any:
    """A transaction that changes nothing."""
    transaction = kazoo.transaction()
    transaction.check(path, -1)
    return transaction.commit_async()


class CellVerbs(Part):
    """Get and set."""

    def _with_base(self, link: Link, *sends: Any) -> list[Any]:
        """The same requests, with the base after them where it can be raised meanwhile: a session keeps it."""
        return [*sends] if link.beats else [*sends, partial(_get, self.layout.base)]

    def _without_base(self, link: Link, answers: list[Any]) -> list[Any]:
        """The answers to those requests, once the base is taken from them."""
        if link.beats:
            return answers
        *answers, base = answers
        if not isinstance(base, NoNodeError):
            self.take_base(link, base[0])
        return answers

    async def _found(self, link: Link, path: str, until: float, fresh: bool) -> tuple[bytes | None, int, int | None]:
        """The value, its version, and ZooKeeper's own version of the node; None if there is no node.

        A server answers a read by itself, and may lag behind. What is to be `fresh` comes after a transaction that
        changes nothing, and has been through a majority.
        """
        sends = [partial(_get, path)]
        if fresh:
            sends.insert(0, partial(_go_through, self.layout.base))
        asked = clock.now()
        *_, found = self._without_base(link, await self.read(link, until, *self._with_base(link, *sends)))
        if isinstance(found, NoNodeError):
            return None, 0, None
        data, stat = found
        there, keep = _HEAD.unpack_from(data)
        version = await self.version(link, stat.mzxid, until)
        # No clock has a say in whether it was deleted.
        if not there or (keep and await self._passed(link, stat.mtime / 1000 + keep, asked, until)):
            return None, 0, stat.version
        self.engine.seen.note(path, link, version, stat.version)
        return data[_HEAD.size :], version, stat.version

    async def _passed(self, link: Link, end: float, moment: float, until: float) -> bool:
        """Whether the server's clock had reached this end at a moment, which was before the value was read.

        Had it ended only after that, somebody might have written another one before its end.
        """
        now = link.clock.at(moment)
        if now is None or (end <= now and not link.clock.fresh):
            await self._see_clock(link, until)
            now = link.clock.at(moment)
        return now is not None and end <= now

    async def _see_clock(self, link: Link, until: float) -> None:
        """Look at the server's clock, by a write that changes nothing: who only looks has no node of its own."""
        while True:
            await self.ready(link, until)
            try:
                written = await self.answer(link, until, link.kazoo.set_async(self.layout.cells, b""))
            except Dropped:
                continue
            if not isinstance(written, NoNodeError):
                link.clock.note(written)
                return
            await self.make_namespace(link, until)

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
            known = None if version == 0 else self.engine.seen.known(path, link, version)
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
            raise EngineFailure(self.address, "the session ended before the answer came", "unknown") from over

    async def _write(self, link: Link, path: str, data: bytes, own: int | None, until: float) -> int | None:
        """The version that this write made; None if somebody else was faster, or something above it was missing."""
        send = partial(_create, path, data) if own is None else partial(_set, path, data, own)
        await self.ready(link, until)
        results = [one(link.kazoo) for one in self._with_base(link, send)]
        (done,) = self._without_base(link, await self.answers(link, until, *results))
        if isinstance(done, NoNodeError) and own is None:
            if link.tokens is None:
                await self.make_namespace(link, until)
                await self.read_base(link, until)
            await self.make_paths(link, [path.rpartition("/")[0]], until)
        if isinstance(done, NoNodeError | NodeExistsError | BadVersionError):
            return None
        stat = done[1] if own is None else done
        link.clock.note(stat)
        version = await self.version(link, stat.mzxid, until, "unknown")
        self.engine.seen.note(path, link, version, stat.version)
        return version
