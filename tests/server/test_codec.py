"""Table changes as bytes and back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.core.table import Dictionary
from holdfast.core.table import changes as ch
from holdfast.core.table.rows import Cell, Letter, Row, Session, Tombstone, Watch
from holdfast.model import Claim, LockEvent
from holdfast.server import codec

CLAIM = Claim("s1-1", "s1", "s1/x", "lock", "a/ü", "shared", True, 3, False, True, 2.5, "a note", "MainThread")
WHAT_IS: list[ch.Change] = [
    ch.PutSession(Session("s1", 10.0, 12.5, "app", "host", 7)),
    ch.PutCounter(0, 2**53 - 1),
    ch.PutRow(Row(CLAIM, 5, 1.25, 6, 2, 9.75, "digest")),
    ch.PutRow(Row(replace(CLAIM, id="s1-2", note="half \ud800 a pair"), 7, 1.5)),
    ch.PutTombstone(Tombstone("s1-9", "s1", "it was withdrawn")),
    ch.PutCell(Cell("cell", "c", bytes(range(256)), 8, 60.0, 61.0)),
    ch.PutWatch(Watch("s1", "w", "lock", "a/")),
    ch.PutLetter(Letter("s1", "w", 1, LockEvent("granted", "lock", "a", "s1/x", "s1-1", 99.5, 6, "shared", "why"))),
]


def table_of(changes: list[ch.Change]) -> Dictionary:
    table = Dictionary(4)
    for change in changes:
        table.put(change)
    return table


@pytest.mark.parametrize("change", WHAT_IS, ids=lambda change: type(change).__name__)
def test_a_change_comes_back_as_it_was(change: ch.Change) -> None:
    blob, _ = codec.write_batch(1, 0.0, codec.records([change]), 0)
    (record,) = codec.read_batch(blob, 1, 0).records
    assert codec.put_change(record) == change


def test_the_changes_of_a_whole_table_make_an_equal_one() -> None:
    table = table_of(WHAT_IS)
    assert vars(table_of(list(codec.whole(table)))).keys() == vars(table).keys()
    copy = table_of(list(codec.whole(table)))
    for part in ("sessions", "rows", "counters", "tombstones", "cells", "watches", "letters", "claims_of", "usage"):
        assert getattr(copy, part) == getattr(table, part), part


def test_of_many_numbers_of_a_counter_the_last_is_kept() -> None:
    assert codec.records([ch.PutCounter(0, 1), ch.PutCounter(0, 2)]) == [("N", 0, 2)]


def chain(count: int) -> list[bytes]:
    blobs, before = [], 0
    for number in range(1, count + 1):
        blob, before = codec.write_batch(number, float(number), codec.records(WHAT_IS), before)
        blobs.append(blob)
    return blobs


def read(blobs: list[bytes]) -> None:
    before = 0
    for number, blob in enumerate(blobs, 1):
        before = codec.read_batch(blob, number, before).sum


def test_every_byte_of_a_batch_is_covered() -> None:
    (blob,) = chain(1)
    read([blob])
    for at in range(len(blob)):
        changed = blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1 :]
        with pytest.raises((codec.Untrusted, codec.TooNew)):
            read([changed])


@pytest.mark.parametrize("order", [(0, 2), (1, 0, 2), (0, 1, 1), (0, 0, 2)], ids=str)
def test_a_batch_that_is_missing_or_out_of_place_is_noticed(order: tuple[int, ...]) -> None:
    blobs = chain(3)
    read(blobs)
    with pytest.raises(codec.Untrusted):
        read([blobs[at] for at in order])


def test_a_batch_of_another_history_is_noticed() -> None:
    blobs = chain(2)
    other, before = codec.write_batch(1, 1.0, [], 0)
    assert before
    with pytest.raises(codec.Untrusted):
        read([other, blobs[1]])


def test_a_later_version_is_told_from_damage() -> None:
    blob, _ = codec.seal(b"[]")
    with pytest.raises(codec.TooNew) as refused:
        codec.unseal(b"2" + blob[1:])
    assert refused.value.version == 2
