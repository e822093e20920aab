"""The whole table as of one batch, in parts that etcd takes, so that the log before it can go."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from holdfast.core.table import Dictionary
from holdfast.core.table.changes import Change
from holdfast.engines.etcd import steps
from holdfast.engines.etcd.keys import end_of
from holdfast.server import codec
from holdfast.server.cluster.keys import Keys
from holdfast.server.cluster.wire import Call, Etcd, read_all
from holdfast.server.codec import Record, TooNew, Untrusted

FORMAT = 1
RECORDS = 500
"""How many records are encoded before others have their turn."""
PART = 1 << 20
"""Bytes of a part before it is compressed; a cell more does no harm."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a load begins with."""

    first_number: int
    """Where tokens began."""
    number: int = 0
    """The last entry of the log that is in the snapshot; its parts are kept under this number."""
    chain: int = 0
    """The checksum of the log up to there."""
    at: float = 0.0
    """The table's time then."""
    parts: int = 0
    sum: int = 0
    """The checksum of all parts."""
    size: int = 0
    """Bytes of all parts."""

    def packed(self) -> bytes:
        return json.dumps({"format": FORMAT} | asdict(self)).encode()


def read_head(value: bytes) -> Head:
    """The head that was written; TooNew if a later Holdfast did."""
    found = json.loads(value)
    if found["format"] > FORMAT:
        raise TooNew(found["format"])
    return Head(**{name: found[name] for name in Head.__slots__ if name in found})


def copied(table: Dictionary) -> Iterator[Change]:
    """The changes that make the table as it is now, whatever becomes of it: rows are replaced, they do not change."""
    copy = Dictionary(table.first_number)
    copy.sessions, copy.counters, copy.rows = dict(table.sessions), dict(table.counters), dict(table.rows)
    copy.cells, copy.watches = dict(table.cells), dict(table.watches)
    copy.tombstones = {session: dict(stones) for session, stones in table.tombstones.items()}
    copy.letters = {watch: list(letters) for watch, letters in table.letters.items()}
    return codec.whole(copy)


async def read_parts(call: Call, keys: Keys, head: Head, revision: int) -> list[Sequence[Record]]:
    """The records of a snapshot, checked."""
    found: list[Sequence[Record]] = []
    if not head.parts:
        return found
    start, chain = keys.snapshot(head.number), 0
    async for kv in read_all(call, start, end_of(start), revision):
        try:
            body, chain = codec.unseal(zlib.decompress(kv.value), chain)
        except zlib.error as error:
            raise Untrusted(f"a part of its snapshot cannot be read ({error})") from error
        found.append(codec.parse(body))
    if (len(found), chain) != (head.parts, head.sum):
        raise Untrusted(f"its snapshot has {len(found)} parts, or others than the {head.parts} that were written")
    return found


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

    async def write(self, mine: Any) -> tuple[Head, int] | None:
        """Write it, and let the log go that it stands for, as long as `mine` (to be compared) holds.

        The new head and the revision of that step; None if `mine` did not hold.
        """
        keys, number = self._keys, self.head.number
        count = chain = size = 0
        for body in parts(self._changes):
            await asyncio.sleep(0)
            if body is None:
                continue
            sealed, chain = codec.seal(body, chain)
            part = zlib.compress(sealed, 1)
            answer = await self._etcd.decide([mine], [steps.put(keys.part(number, count), part)])
            if not answer.message.succeeded:
                return None
            count, size = count + 1, size + len(part)
        head = Head(self.head.first_number, number, self.head.chain, self.head.at, count, chain, size)
        snapshots = keys.snapshots
        answer = await self._etcd.decide(
            [mine],
            [
                steps.put(keys.head, head.packed()),
                steps.delete_range(*keys.logs_upto(number)),
                steps.delete_range(snapshots, keys.snapshot(number)),
                steps.delete_range(end_of(keys.snapshot(number)), end_of(snapshots)),
            ],
        )
        return (head, answer.revision) if answer.message.succeeded else None
