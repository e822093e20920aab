"""Counters at their end: a step that would need a number changes nothing, and no other step fails."""

from __future__ import annotations

import pytest

from holdfast.core.table import Dictionary, apply
from holdfast.core.table import commands as cmd
from holdfast.core.table.changes import DropRow, PutCounter, PutRow
from holdfast.core.table.rows import Session
from holdfast.core.table.shortcuts import carry_out
from holdfast.core.table.step import LAST_NEW
from holdfast.errors import EngineUnavailable
from holdfast.model import HIGHEST_RAISE, MAX_TOKEN, Claim, Granted, Place


def claim(label: str, session: str = "s1", kind: str = "x.lock", limit: int = 0, name: str = "k") -> Claim:
    return Claim(f"{session}-{label}", session, f"{session}/{label}", kind, name, limit=limit)


class Table:
    """A table with three sessions, where `s1` holds `k` and `s2` waits for it, and the same of a permit."""

    def __init__(self) -> None:
        self.table, self.now = Dictionary(), 0.0
        for session, ttl in (("s1", 10.0), ("s2", 1000.0), ("s3", 1000.0)):
            self.run(cmd.Open(Session(session, ttl, 0.0)))
        for session in ("s1", "s2"):
            self.run(cmd.Enter(claim("lock", session)))
            self.run(cmd.Enter(claim("permit", session, "x.permit", limit=1)))
        self.run(cmd.Enter(claim("other", "s2", name="other")))
        self.run(cmd.HandOver(claim("other", "s2", name="other"), "ticket"))

    def run(self, command: cmd.Command) -> cmd.Reply:
        return apply(command, self.now, self.table.answer, self.table.put).reply

    def use_up(self, last: int) -> None:
        self.table.put(PutCounter(0, last))


@pytest.mark.parametrize(
    "command",
    [
        cmd.Enter(claim("new", "s3", name="free")),
        cmd.Enter(claim("new", "s3")),
        cmd.Enter(claim("new", "s3", "x.permit", limit=1)),
        cmd.Adopt(claim("adopted", "s3", name="other"), "s2-other", "ticket"),
        cmd.CellSet("x.cell", "c", b"value"),
    ],
    ids=["free", "queued", "permit", "adopt", "cell"],
)
def test_a_step_that_needs_a_number_changes_nothing_if_there_is_none(command: cmd.Command) -> None:
    table = Table()
    table.use_up(LAST_NEW)
    # The holder of the permit is dead: an enter would first pass the permit on.
    table.now = 20.0
    changed: list[object] = []

    with pytest.raises(EngineUnavailable) as refused:
        apply(command, table.now, table.table.answer, changed.append)

    assert (refused.value.outcome, changed) == ("not done", [])


def test_the_short_way_ends_before_the_last_numbers() -> None:
    table = Table()
    done: list[PutRow | DropRow] = []
    table.use_up(LAST_NEW - 1)
    free = [claim(f"n{number}", "s3", name=f"free{number}") for number in range(2)]

    carry_out(table.table, [(one.session, one.id, one) for one in free], table.now, done)

    assert [change.row.token for change in done] == [LAST_NEW]


@pytest.mark.parametrize("kind", ["lock", "permit"])
def test_what_was_queued_is_granted_with_the_last_numbers(kind: str) -> None:
    table = Table()
    table.use_up(LAST_NEW)
    held, waiting = (claim(kind, session, f"x.{kind}", limit=1 if kind == "permit" else 0) for session in ("s1", "s2"))

    assert table.run(cmd.Release(held)) == cmd.Done()

    assert table.run(cmd.Look(waiting)) == Granted(LAST_NEW + 1, 0 if kind == "permit" else None, None)


def test_releases_and_sweeps_succeed_even_without_any_number() -> None:
    table = Table()
    table.use_up(MAX_TOKEN)

    assert table.run(cmd.Release(claim("lock"))) == cmd.Done()
    table.now = 20.0
    assert isinstance(table.run(cmd.Sweep()), cmd.Done)

    assert isinstance(table.run(cmd.Look(claim("lock", "s2"))), Place)
    assert isinstance(table.run(cmd.Look(claim("permit", "s2", "x.permit", limit=1))), Place)
    assert table.table.last(0) == MAX_TOKEN


def test_after_the_highest_raise_many_tokens_are_left() -> None:
    table = Table()

    table.run(cmd.RaiseTokens(HIGHEST_RAISE))

    granted = table.run(cmd.Enter(claim("new", "s3", name="free")))
    assert granted == Granted(HIGHEST_RAISE + 1, None, None)
    assert LAST_NEW - HIGHEST_RAISE > 2**39
