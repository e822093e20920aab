"""Batches in the log of a cluster."""

from __future__ import annotations

from random import Random

import pytest

from holdfast.core.table.changes import PutCell
from holdfast.core.table.rows import Cell
from holdfast.server import codec
from holdfast.server.cluster import entries
from holdfast.server.cluster.entries import Joiner
from holdfast.server.codec import Batch, Untrusted


def blob(number: int, before: int, size: int = 10) -> tuple[bytes, int]:
    cell = Cell("cell", "c", Random(number).randbytes(size), number, None, None)
    return codec.write_batch(number, float(number), codec.records([PutCell(cell)]), before)


def batch(number: int, before: int, size: int = 10) -> tuple[list[bytes], int]:
    found, chain = blob(number, before, size)
    return entries.packed(found, 1), chain


def joined(joiner: Joiner, first: int, found: list[bytes]) -> list[Batch]:
    return [each for at, entry in enumerate(found) for each in joiner.take(first + at, entry)]


def test_a_small_batch_is_one_entry() -> None:
    found, _ = batch(1, 0)

    assert len(found) == 1
    assert joined(Joiner(0, 0), 1, found)[0].number == 1


def test_a_batch_that_is_larger_than_etcd_takes_is_several_entries_and_comes_back_as_one() -> None:
    size = 2 * entries.LARGEST + 10
    found, chain = batch(3, 0, size)
    joiner = Joiner(0, 0)

    (whole,) = joined(joiner, 1, found)

    assert len(found) == 3
    assert max(map(len, found)) <= entries.LARGEST + 1
    assert len(whole.records[0][3]) == size
    assert (joiner.number, joiner.chain, joiner.next) == (3, chain, 4)


def test_a_batch_may_have_more_entries_than_it_needs() -> None:
    """It carries the number of its last entry, and may come out shorter with the number that it needs when longer."""
    found, chain = blob(3, 0)
    joiner = Joiner(0, 0)

    (whole,) = joined(joiner, 1, entries.packed(found, 3))

    assert (whole.number, joiner.next, joiner.chain) == (3, 4, chain)


def test_a_batch_from_before_they_were_compressed_is_read() -> None:
    found, _ = blob(1, 0)

    assert joined(Joiner(0, 0), 1, entries.split(found))[0].number == 1


def test_a_batch_that_was_changed_is_noticed() -> None:
    (entry,), _ = batch(1, 0, 1000)
    with pytest.raises(Untrusted, match="cannot be read"):
        joined(Joiner(0, 0), 1, [entry[:-3] + b"abc"])
    with pytest.raises(Untrusted, match="cannot be read"):
        joined(Joiner(0, 0), 1, [entry[:500]])


def test_a_batch_that_was_not_finished_is_none() -> None:
    found, _ = batch(3, 0, 2 * entries.LARGEST + 10)
    joiner = Joiner(0, 0)

    assert joined(joiner, 1, found[:2]) == []
    assert (joiner.number, joiner.next) == (0, 3)


def test_an_entry_that_is_missing_is_noticed() -> None:
    first, chain = batch(1, 0)
    second, chain = batch(2, chain)
    third, _ = batch(3, chain)
    joiner = Joiner(0, 0)
    joined(joiner, 1, first)

    with pytest.raises(Untrusted, match="entry 3, where 2 should be"):
        joined(joiner, 3, third)
    with pytest.raises(Untrusted, match="checksum"):
        joined(joiner, 2, third)
    assert joined(joiner, 2, second)
