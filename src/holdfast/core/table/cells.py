"""Cells: versioned values, compared and set in one step."""

from __future__ import annotations

from holdfast.core.table import questions as ask
from holdfast.core.table.changes import DropCell, PutCell, PutCounter
from holdfast.core.table.commands import CellGet, CellSet, CellValue, Done, Mismatch, RaiseTokens
from holdfast.core.table.rows import Cell
from holdfast.core.table.step import Asking, Step
from holdfast.model import HIGHEST_RAISE, LockEvent


def watch_kind(kind: str) -> str:
    """The kind under which a cell's changes are watched; no lock has one with a colon."""
    return f"cell:{kind}"


def get(step: Step, command: CellGet) -> Asking[CellValue]:
    """The value and its version; None and 0 if there is none."""
    found: ask.CellAnswer = yield ask.CellNow(command.kind, command.name, step.bucket(command.name))
    return CellValue(None, 0) if found.cell is None else CellValue(found.cell.value, found.cell.version)


def put(step: Step, command: CellSet) -> Asking[CellValue | Mismatch]:
    """Write or delete if the version is the expected one. A new version is larger than any before it."""
    bucket = step.bucket(command.name)
    found: ask.CellAnswer = yield ask.CellNow(command.kind, command.name, bucket)
    current = found.cell.version if found.cell is not None else 0
    if command.expected is not None and command.expected != current:
        return Mismatch(current)
    step.watched = found.watched
    step.last[bucket] = found.last
    if command.value is None:
        if found.cell is None:
            return CellValue(None, 0)
        step.changes.append(DropCell(command.kind, command.name))
        version = 0
    else:
        step.check_numbers(bucket)
        version = step.number(bucket)
        expires_at = None if command.keep is None else step.now + command.keep
        cell = Cell(command.kind, command.name, command.value, version, command.keep, expires_at, command.user)
        step.changes.append(PutCell(cell))
    if step.watched:
        yield from step.post(LockEvent("changed", watch_kind(command.kind), command.name, "", "", step.wall))
    return CellValue(command.value, version)


def raise_tokens(step: Step, command: RaiseTokens) -> Asking[Done]:
    """Move every counter past `above`; one that is past it already stays."""
    assert 0 <= command.above <= HIGHEST_RAISE
    for bucket in range(step.buckets):
        last: int = yield ask.Counter(bucket)
        if last < command.above:
            step.changes.append(PutCounter(bucket, command.above))
    return Done()
