"""What one step does is bounded, whatever the table holds; and what it leaves over comes to an end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.table import Dictionary, apply
from holdfast.core.table import commands as cmd
from holdfast.core.table.questions import Question
from holdfast.core.table.rows import Session
from holdfast.core.table.step import Bounds
from holdfast.model import Claim, Granted, Mode, Place

BOUNDS = Bounds(work=64, names=64, search=500)
FEW, MANY = 400, 1_600


class Table:
    """Counts what each step costs: questions, rows looked at, and changes."""

    def __init__(self) -> None:
        self.table, self.worst = Dictionary(), 0
        for session in ("s1", "s2"):
            self.run(cmd.Open(Session(session, 100.0, 0.0)))

    def run(self, command: cmd.Command) -> Any:
        """One command and all that it leaves over, as steps."""
        reply, rest = self.step(command)
        while rest:
            rest += self.step(rest.pop(0))[1]
        return reply

    def step(self, command: cmd.Command) -> tuple[Any, list[Any]]:
        asked, looked = 0, self.table.looked_at

        def answer(question: Question, now: float) -> Any:
            nonlocal asked
            asked += 1
            return self.table.answer(question, now)

        outcome = apply(command, 0.0, answer, self.table.put, bounds=BOUNDS)
        self.worst = max(self.worst, asked + self.table.looked_at - looked + len(outcome.changes))
        return outcome.reply, outcome.rest

    def enter(self, label: object, name: str, owner: object, mode: Mode = "exclusive", **more: Any) -> Any:
        return self.run(cmd.Enter(self.claim(label, name, owner, mode, **more)))

    def claim(self, label: object, name: str, owner: object, mode: Mode = "exclusive", **more: Any) -> Claim:
        session = more.pop("session", "s1")
        return Claim(f"{session}-{label}", session, f"{session}/{owner}", "x.lock", name, mode, **more)

    def readers(self, count: int) -> None:
        for number in range(count):
            self.enter(f"r{number}", "k", f"r{number}", "shared")


def readers_granted(table: Table, count: int) -> None:
    table.enter("w", "k", "w")
    table.readers(count)
    table.worst = 0
    table.run(cmd.Release(table.claim("w", "k", "w")))
    assert isinstance(table.run(cmd.Look(table.claim(f"r{count - 1}", "k", ""))), Granted)


def names_below(table: Table, count: int) -> None:
    table.enter("s", "d", "s", subtree=True)
    for number in range(count):
        table.enter(f"r{number}", f"d/{number}", f"r{number}", "shared" if number % 2 else "exclusive")
    table.worst = 0
    table.run(cmd.Release(table.claim("s", "d", "s", subtree=True)))
    assert not table.table.waiting.count


def session_ended(table: Table, count: int) -> None:
    table.readers(count)
    table.enter("w", "k", "w", session="s2")
    table.worst = 0
    while table.run(cmd.Close("s1", 64)).more:
        pass
    assert isinstance(table.run(cmd.Look(table.claim("w", "k", "w", session="s2"))), Granted)


def broken(table: Table, count: int, force: bool = False) -> None:
    table.readers(count)
    table.worst = 0
    told = table.run(cmd.Break("x.lock", "k", force, 64))
    claims = told.claims
    while told.after is not None:
        told = table.run(cmd.Break("x.lock", "k", force, 64, told.after, told.upto))
        claims += told.claims
    assert len(claims) == count


def broken_by_force(table: Table, count: int) -> None:
    broken(table, count, force=True)


def queued_behind_readers(table: Table, count: int) -> None:
    table.enter("w", "k", "w")
    table.readers(count)
    table.enter("b", "other", "b")
    table.worst = 0
    assert isinstance(table.enter("q", "k", "b"), Place)


def queued_behind_writers_of_a_path(table: Table, count: int) -> None:
    for number in range(count):
        table.enter(f"w{number}", "a/k", f"w{number}")
    table.enter("b", "other", "b")
    table.enter("c", "another", "c")
    table.worst = 0
    assert isinstance(table.enter("q", "a/k", "b"), Place)
    assert isinstance(table.enter("r", "a/k", "c", "shared"), Place)


def subtree_above_waiters(table: Table, count: int) -> None:
    for name in range(count // 10):
        for number in range(10):
            table.enter(f"w{name}x{number}", f"d/{name}", f"w{name}x{number}")
    table.enter("b", "other", "b")
    table.worst = 0
    assert isinstance(table.enter("q", "d", "b", subtree=True), Place)


def ring(table: Table, count: int) -> None:
    for number in range(count):
        table.enter(f"h{number}", f"k{number}", number)
    for number in range(count - 1):
        table.enter(f"w{number}", f"k{number + 1}", number)
    table.worst = 0
    reply = table.enter("last", "k0", count - 1)
    if 2 * count > BOUNDS.search:
        assert reply == cmd.TooEntangled(BOUNDS.search)
    else:
        assert len(reply.cycle) == count


CASES = [
    readers_granted, names_below, session_ended, broken, broken_by_force, queued_behind_readers,
    queued_behind_writers_of_a_path, subtree_above_waiters, ring,
]  # fmt: skip
EACH_ROW_IS_SEEN: dict[object, float] = {
    subtree_above_waiters: 0.5,
    broken: 0.5,
    broken_by_force: 0.5,
    session_ended: 2.5,
}
"""Where a step looks at all rows, how much of a question that may cost for each of them."""


@pytest.mark.parametrize("case", CASES)
def test_no_step_costs_more_because_the_table_holds_more(case: Callable[[Table, int], None]) -> None:
    few, many = Table(), Table()

    case(few, FEW)
    case(many, MANY)

    assert many.worst <= 1.2 * few.worst + 50 + EACH_ROW_IS_SEEN.get(case, 0.0) * (MANY - FEW)


def test_a_short_ring_is_refused_as_a_deadlock_and_a_long_one_as_too_much() -> None:
    ring(Table(), 10)
    ring(Table(), 600)


def test_a_claim_that_is_too_entangled_leaves_nothing_behind() -> None:
    table = Table()
    ring(table, 600)
    before = dict(table.table.rows)

    assert isinstance(table.enter("again", "k0", 599), cmd.TooEntangled)

    assert table.table.rows == before
    assert table.enter("free", "free", 599).token


def test_a_renewal_tells_of_so_many_claims_that_are_gone_and_then_of_the_next() -> None:
    table = Table()
    table.readers(10)
    table.run(cmd.Break("x.lock", "k", True))
    told: list[str] = []

    reply = table.run(cmd.Renew("s1", most=4))
    while True:
        told += [claim for claim, _ in reply.gone]
        assert len(reply.gone) <= 4
        if not reply.more:
            break
        reply = table.run(cmd.Renew("s1", told[-1], 4))

    assert told == sorted(f"s1-r{number}" for number in range(10))


def test_the_count_of_waiters_and_the_longest_queue_are_known_at_any_time() -> None:
    table = Table()
    table.enter("w", "k", "w")
    table.enter("v", "l", "w")
    table.readers(5)
    table.enter("x", "l", "x")
    waiting = table.table.waiting
    assert (waiting.count, waiting.longest) == (6, 5)

    table.run(cmd.Leave(table.claim("r0", "k", "r0")))
    assert (waiting.count, waiting.longest) == (5, 4)
    table.run(cmd.Release(table.claim("w", "k", "w")))
    assert (waiting.count, waiting.longest) == (1, 1)
    table.run(cmd.Release(table.claim("v", "l", "w")))
    assert (waiting.count, waiting.longest) == (0, 0)
