"""A copy of the table, made from etcd: its snapshot, its log, and then what is added to that."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.core.table import Dictionary
from holdfast.engines.etcd import steps
from holdfast.runtime import clock
from holdfast.server import codec, recovery
from holdfast.server.cluster.entries import Joiner
from holdfast.server.cluster.head import Head, read_head
from holdfast.server.cluster.keys import Keys
from holdfast.server.cluster.snapshot import fetch_parts, read_parts
from holdfast.server.cluster.wire import WITHIN, Call, read, read_all
from holdfast.server.window import Window


class Mirror:
    """The table as of one entry of the log."""

    def __init__(self, table: Dictionary, head: Head, head_revision: int, joiner: Joiner, at: float) -> None:
        self.table, self.head, self.head_revision, self._joiner, self.at = table, head, head_revision, joiner, at
        self.heard = clock.now()
        """When the last batch came, on our own clock; its time on the table's is `at`."""
        self._sizes: dict[int, int] = {}
        """Bytes of each entry that is still in the log."""
        self.log_bytes = 0

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

    def take(self, found: Iterable[tuple[int, bytes]]) -> None:
        """The next entries of the log. Untrusted if one of them is not; those before it are taken."""
        batches: list[codec.Batch] = []
        try:
            for number, entry in found:
                batches += self._joiner.take(number, entry)
                self.weigh(number, entry)
        finally:
            self._apply(batches)

    def _apply(self, batches: Sequence[codec.Batch]) -> None:
        """Let them have the last word. Most claims come and go between two looks: they are not made at all."""
        table, put = self.table, self.table.put
        rows: dict[str, codec.Record] = {}
        for batch in batches:
            for record in batch.records:
                kind = record[0]
                if kind == "R":
                    rows[record[1][0]] = record
                elif kind == "r":
                    rows.pop(record[1], None)
                    if record[1] in table.rows:
                        put(codec.change(record, table))
                else:
                    put(codec.change(record, table))
            self.at, self.heard = batch.at, clock.now()
        for record in rows.values():
            put(codec.change(record, table))

    def settle(self, head: Head, revision: int) -> None:
        """There is a new snapshot, and what it stands for is no log any more."""
        self.head, self.head_revision = head, revision
        while self._sizes and (first := next(iter(self._sizes))) <= head.number:
            self.drop(first)

    def weigh(self, number: int, entry: bytes) -> None:
        """It is in the log."""
        self.drop(number)
        self._sizes[number] = len(entry)
        self.log_bytes += len(entry)

    def drop(self, number: int) -> None:
        """It is in the log no more: a snapshot stands for it, or its batch was not finished."""
        self.log_bytes -= self._sizes.pop(number, 0)

    def forget_unfinished(self) -> None:
        """The pieces of a batch that its leader did not live to finish are void."""
        self._joiner.forget_unfinished()

    async def clear_unfinished(self, call: Call, keys: Keys, mine: Any) -> None:
        """Remove them from etcd, as long as `mine` (to be compared) holds.

        Each by its revision: etcd may carry out a request late, when something else is in its place.
        """
        self.forget_unfinished()
        for kv in [each async for each in read_all(call, *keys.logs_from(self.next))]:
            removal = steps.step([mine, steps.unchanged(kv.key, kv.mod_revision)], [steps.delete(kv.key)])
            await call(removal, clock.now() + WITHIN)
            self.drop(keys.number(kv.key))


async def load(call: Call, keys: Keys, threads: bool = True) -> tuple[Mirror | None, int]:
    """The mirror of what is in etcd, None if nothing is; and the revision of that look.

    Raises codec.Untrusted or codec.TooNew. All is read as of one revision, whatever is written meanwhile.
    """
    kv, revision = await read(call, keys.head)
    if kv is None:
        return None, revision
    head = read_head(kv.value)
    parts = await fetch_parts(call, keys, head, revision)
    log = [each async for each in read_all(call, *keys.logs_from(head.number + 1), revision)]
    found = [(keys.number(each.key), each.value) for each in log]
    # Parsing a large table takes seconds, in which the server has others to answer.
    args = head, kv.mod_revision, parts, found
    return (await asyncio.to_thread(_made, *args) if threads else _made(*args)), revision


def _made(head: Head, head_revision: int, parts: Sequence[bytes], log: list[tuple[int, bytes]]) -> Mirror:
    window, joiner, at = Window(), Joiner(head.number, head.chain), head.at
    for number, entry in log:
        for batch in joiner.take(number, entry):
            window.absorb(batch.records)
            at = batch.at
    table = recovery.rebuild(head.first_number, read_parts(parts, head), window)
    mirror = Mirror(table, head, head_revision, joiner, at)
    for number, entry in log:
        mirror.weigh(number, entry)
    return mirror
