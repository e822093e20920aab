"""The whole table as of one batch, in parts that etcd takes, so that the log before it can go."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from holdfast.core.table import Dictionary
from holdfast.core.table.changes import Change
from holdfast.engines.etcd import steps
from holdfast.engines.etcd.keys import end_of
from holdfast.server import codec
from holdfast.server.cluster import entries
from holdfast.server.cluster.head import Head, write_head
from holdfast.server.cluster.keys import Keys
from holdfast.server.cluster.wire import Call, Etcd, read_all
from holdfast.server.codec import Record, Untrusted

RECORDS = 100
"""How many records are encoded before others have their turn."""
PART = 1 << 20
"""Bytes that are compressed together; a cell more does no harm."""


def copied(table: Dictionary) -> Iterator[Change]:
    """The changes that make the table as it is now, whatever becomes of it: rows are replaced, they do not change."""
    copy = Dictionary(table.first_number)
    copy.sessions, copy.counters, copy.rows = dict(table.sessions), dict(table.counters), dict(table.rows)
    copy.cells, copy.watches = dict(table.cells), dict(table.watches)
    copy.tombstones = {session: dict(stones) for session, stones in table.tombstones.items()}
    copy.letters = {watch: list(letters) for watch, letters in table.letters.items()}
    return codec.whole(copy)


async def fetch_parts(call: Call, keys: Keys, head: Head, revision: int) -> list[bytes]:
    """The parts of a snapshot, as they are in etcd."""
    start = keys.snapshot(head.number)
    return [kv.value async for kv in read_all(call, start, end_of(start), revision, page=4)] if head.parts else []


def read_parts(found: Sequence[bytes], head: Head) -> Iterator[Sequence[Record]]:
    """The records of a snapshot, checked."""
    chain = 0
    for part in entries.joined(found):
        try:
            body, chain = codec.unseal(zlib.decompress(part), chain)
        except zlib.error as error:
            raise Untrusted(f"a part of its snapshot cannot be read ({error})") from error
        yield codec.parse(body)
    if (len(found), chain) != (head.parts, head.sum):
        raise Untrusted(f"its snapshot has {len(found)} parts, or others than the {head.parts} that were written")


def parts(changes: Iterator[Change]) -> Iterator[bytes | None]:
    """The records of these changes as bodies of parts; None now and then, where others may have their turn."""
    waiting: list[bytes] = []
    size = 0
    while records := codec.records(islice(changes, RECORDS)):
        waiting.append(codec.dump(records)[1:-1])
        size += len(waiting[-1])
        if size >= PART:
            yield b"[" + b",".join(waiting) + b"]"
            waiting, size = [], 0
        else:
            yield None
    if waiting:
        yield b"[" + b",".join(waiting) + b"]"


class Snapshot:
    """One being written, beside the commits."""

    def __init__(self, etcd: Etcd, keys: Keys, changes: Iterator[Change], head: Head) -> None:
        self._etcd, self._keys, self._changes, self.head = etcd, keys, changes, head

    async def write(self, term: int, before: Head, seen: int) -> tuple[Head, int] | None:
        """Write it in place of the snapshot `before`, whose head is of revision `seen`.

        The new head and its revision; None if that term is over. The log that led to the one before goes. What came
        since then stays until the next: followers may not have read the last of it.
        """
        keys, number, call = self._keys, self.head.number, self._etcd.call
        mine = steps.created_at(keys.leader, term)
        count = chain = size = 0
        for body in parts(self._changes):
            await asyncio.sleep(0)
            if body is None:
                continue
            sealed, chain = codec.seal(body, chain)
            for part in entries.split(zlib.compress(sealed, 1)):
                answer = await self._etcd.decide([mine], [steps.put(keys.part(number, count), part)])
                if not answer.message.succeeded:
                    return None
                count, size = count + 1, size + len(part)
        head = replace(self.head, parts=count, sum=chain, size=size)
        also = [steps.delete_range(*keys.logs_upto(before.number)), *others(keys, number)]
        revision = await write_head(call, keys, term, seen, head, also)
        return None if revision is None else (head, revision)

    async def clear(self, term: int) -> None:
        """Remove what was written of it: it will not be finished."""
        start = self._keys.snapshot(self.head.number)
        mine = steps.created_at(self._keys.leader, term)
        await self._etcd.decide([mine], [steps.delete_range(start, end_of(start))])


def others(keys: Keys, number: int) -> list[Any]:
    """What removes every snapshot but this one."""
    return [
        steps.delete_range(keys.snapshots, keys.snapshot(number)),
        steps.delete_range(end_of(keys.snapshot(number)), end_of(keys.snapshots)),
    ]
