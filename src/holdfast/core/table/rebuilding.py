"""A table made of the rows of another one, or of those that a store has kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from math import inf
from typing import Any

from holdfast.core.table import changes as ch
from holdfast.core.table.dictionary import Dictionary
from holdfast.core.table.directory import YOUNG
from holdfast.core.table.rows import Row


def rebuilt(table: Dictionary) -> Dictionary:
    """The same table, with everything that follows from the rows made anew."""
    new = Dictionary(table.first_number)
    new.counters = table.counters
    puts: list[tuple[Callable[[Any], ch.Change], Iterable[Any]]] = [
        (ch.PutSession, table.sessions.values()),
        (ch.PutTombstone, chain.from_iterable(each.values() for each in table.tombstones.values())),
        (ch.PutCell, table.cells.values()),
        (ch.PutWatch, table.watches.values()),
        (ch.PutLetter, chain.from_iterable(table.letters.get(key, ()) for key in table.watches)),
    ]
    for make, found in puts:
        for one in found:
            new.put(make(one))
    fill(new, table.rows.values())
    return new


def fill(table: Dictionary, rows: Iterable[Row]) -> None:
    """Put very many claims into a table that has their sessions and no claims yet."""
    directory = table.directory
    directory.patience = inf
    for row in sorted(rows, key=lambda row: row.order):
        table.put_row(row)
    directory.patience = YOUNG
    directory.settle()
