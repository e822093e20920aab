"""A copy of the table, made from etcd: its snapshot, its log, and then what is added to that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from holdfast.core.table import Dictionary
from holdfast.engines.etcd import steps
from holdfast.runtime import clock
from holdfast.server import codec, recovery
from holdfast.server.cluster.entries import Joiner
from holdfast.server.cluster.keys import Keys
from holdfast.server.cluster.snapshot import Head, read_head, read_parts
from holdfast.server.cluster.wire import Call, read, read_all
from holdfast.server.codec import Batch, Record
from holdfast.server.window import Window


class Mirror:
    """The table as of one entry of the log."""

    def __init__(self, table: Dictionary, head: Head, joiner: Joiner, at: float, log_bytes: int) -> None:
        self.table, self.head, self._joiner, self.at, self.log_bytes = table, head, joiner, at, log_bytes
        self.heard = clock.now()
        """When the last batch came, on our own clock; its time on the table's is `at`."""

    @property
    def number(self) -> int:
        """The last entry of the last whole batch."""
        return self._joiner.number

    @property
    def chain(self) -> int:
        """The checksum of the log up to there."""
        return self._joiner.chain

    @property
    def next(self) -> int:
        """The entry that comes next."""
        return self._joiner.next

    def take(self, number: int, entry: bytes) -> None:
        """One more entry of the log. Untrusted if it is not the next."""
        for batch in self._joiner.take(number, entry):
            put, table = self.table.put, self.table
            for record in batch.records:
                put(codec.change(record, table))
            self.at, self.heard = batch.at, clock.now()
        self.log_bytes += len(entry)

    def without_unfinished(self, keys: Keys) -> Any:
        """What removes the pieces of a batch that its leader did not live to finish: here at once, and from etcd."""
        self._joiner = Joiner(self._joiner.number, self._joiner.chain)
        return steps.delete_range(*keys.logs_from(self.next))


async def load(call: Call, keys: Keys, threads: bool = True) -> tuple[Mirror | None, int]:
    """The mirror of what is in etcd, None if nothing is; and the revision of that look.

    Raises codec.Untrusted or codec.TooNew. All is read as of one revision, whatever is written meanwhile.
    """
    kv, revision = await read(call, keys.head)
    if kv is None:
        return None, revision
    head = read_head(kv.value)
    portions = await read_parts(call, keys, head, revision)
    joiner, batches, size = Joiner(head.number, head.chain), list[Batch](), 0
    async for kv in read_all(call, *keys.logs_from(head.number + 1), revision):
        batches += joiner.take(keys.number(kv.key), kv.value)
        size += len(kv.value)
    # Parsing a large table takes seconds, in which the server has others to answer.
    args = head.first_number, portions, batches
    table = await asyncio.to_thread(_rebuilt, *args) if threads else _rebuilt(*args)
    return Mirror(table, head, joiner, batches[-1].at if batches else head.at, size), revision


def _rebuilt(first_number: int, portions: Sequence[Sequence[Record]], batches: list[Batch]) -> Dictionary:
    window = Window()
    for batch in batches:
        window.absorb(batch.records)
    return recovery.rebuild(first_number, portions, window)
