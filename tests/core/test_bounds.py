"""What one step does is bounded, whatever the table holds; and what it leaves over comes to an end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.table import Dictionary, apply, dictionary
from holdfast.core.table import commands as cmd
from holdfast.core.table.questions import Question
from holdfast.core.table.rows import Session
from holdfast.core.table.step import Bounds
from holdfast.model import Claim, Granted, Mode, Place, Refused
from tests.core.test_ends import lines_run

BOUNDS = Bounds(work=64, names=64, search=500, looks=200, scan=1_000)
FEW, MANY = 400, 1_600


LINES_PER_QUESTION, LINES_PER_LOOK, LINES_PER_CHANGE = 60, 40, 60
"""Lines of Python that each of these may take."""


@pytest.fixture(autouse=True)
def few_dead_are_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real number, only a table of many thousands would show that it is kept."""
    monkeypatch.setattr(dictionary, "MOST_DEAD", 50)
    monkeypatch.setattr(dictionary, "MOST_ENDED", 50)


class Table:
    """Counts what each step costs: questions, rows looked at, and changes; and the lines that this does not explain."""

    def __init__(self) -> None:
        self.table, self.now, self.worst, self.uncounted = Dictionary(), 0.0, 0, 0
        self.measured = False
        for session, ttl in (("s1", 100.0), ("s2", 100.0), ("mortal", 1.0)):
            self.run(cmd.Open(Session(session, ttl, 0.0)))

    def measure(self) -> None:
        """From now on: what came before has filled the table."""
        self.worst, self.measured = 0, True

    def run(self, command: cmd.Command) -> Any:
        """One command and all that it leaves over, as steps."""
        reply, rest = self.step(command)
        while rest:
            rest += self.step(rest.pop(0))[1]
        return reply

    def step(self, command: cmd.Command) -> tuple[Any, list[Any]]:
        asked, looked, table = 0, self.table.looked_at, self.table
        outcome: Any = None

        def answer(question: Question, now: float) -> Any:
            nonlocal asked
            asked += 1
            return table.answer(question, now)

        def work() -> None:
            nonlocal outcome
            outcome = apply(command, self.now, answer, table.put, bounds=BOUNDS, meter=table)

        lines = 0
        if self.measured:
            lines = lines_run(work)
        else:
            work()
        looked, changes = table.looked_at - looked, len(outcome.changes)
        self.worst = max(self.worst, asked + looked + changes)
        explained = LINES_PER_QUESTION * asked + LINES_PER_LOOK * looked + LINES_PER_CHANGE * changes
        self.uncounted = max(self.uncounted, lines - explained)
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
    table.measure()
    table.run(cmd.Release(table.claim("w", "k", "w")))
    assert isinstance(table.run(cmd.Look(table.claim(f"r{count - 1}", "k", ""))), Granted)


def names_below(table: Table, count: int) -> None:
    table.enter("s", "d", "s", subtree=True)
    for number in range(count):
        table.enter(f"r{number}", f"d/{number}", f"r{number}", "shared" if number % 2 else "exclusive")
    table.measure()
    table.run(cmd.Release(table.claim("s", "d", "s", subtree=True)))
    assert not table.table.waiting.count


def session_ended(table: Table, count: int) -> None:
    table.readers(count)
    table.enter("w", "k", "w", session="s2")
    table.measure()
    while table.run(cmd.Close("s1", 64)).more:
        pass
    assert isinstance(table.run(cmd.Look(table.claim("w", "k", "w", session="s2"))), Granted)


def broken(table: Table, count: int, force: bool = False) -> None:
    table.readers(count)
    table.measure()
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
    table.measure()
    assert isinstance(table.enter("q", "k", "b"), Place)


def queued_behind_writers_of_a_path(table: Table, count: int) -> None:
    for number in range(count):
        table.enter(f"w{number}", "a/k", f"w{number}")
    table.enter("b", "other", "b")
    table.enter("c", "another", "c")
    table.measure()
    assert isinstance(table.enter("q", "a/k", "b"), Place)
    assert isinstance(table.enter("r", "a/k", "c", "shared"), Place)


def subtree_above_waiters(table: Table, count: int) -> None:
    for name in range(count // 10):
        for number in range(10):
            table.enter(f"w{name}x{number}", f"d/{name}", f"w{name}x{number}")
    table.enter("b", "other", "b")
    table.measure()
    assert isinstance(table.enter("q", "d", "b", subtree=True), Place)


def ring(table: Table, count: int) -> None:
    for number in range(count):
        table.enter(f"h{number}", f"k{number}", number)
    for number in range(count - 1):
        table.enter(f"w{number}", f"k{number + 1}", number)
    table.measure()
    reply = table.enter("last", "k0", count - 1)
    if 2 * count > BOUNDS.search:
        assert reply == cmd.TooEntangled(BOUNDS.search)
    else:
        assert len(reply.cycle) == count


def entered_again(table: Table, count: int) -> None:
    """All readers of a name have entered again, and one of the path above; others want to write."""
    for number in range(count):
        table.enter(f"r{number}", "a/k", f"r{number}", "shared")
    for number in range(count - 1):
        table.enter(f"e{number}", "a/k", f"r{number}", "shared", reentrant=True)
    table.measure()
    for name, subtree in (("a/k", False), ("a", True)):
        assert isinstance(table.enter(f"try{name}", name, "t", subtree=subtree, waits=False), Refused)
        assert isinstance(table.enter(f"w{name}", name, f"w{name}", subtree=subtree), Place)
        assert isinstance(table.run(cmd.Look(table.claim(f"w{name}", name, "", subtree=subtree))), Place)
    assert len(table.run(cmd.Break("x.lock", "a/k", False, 64)).claims) == 64
    table.run(cmd.Release(table.claim("r1", "a/k", "r1", "shared")))


def entered_again_by_one(table: Table, count: int) -> None:
    """One owner reads a name many times and wants to write it."""
    for number in range(count):
        table.enter(f"r{number}", "k", "r", "shared")
    table.measure()
    table.enter("w", "k", "r", reentrant=True, waits=False)


def dead_writers_before_readers(table: Table, count: int) -> None:
    table.enter("w", "k", "w")
    for number in range(count):
        table.enter(f"d{number}", "k", f"d{number}", session="mortal")
    table.readers(count)
    table.now = 2.0
    table.measure()
    table.run(cmd.Release(table.claim("w", "k", "w")))
    while table.run(cmd.Sweep(64)).more:
        pass
    assert isinstance(table.run(cmd.Look(table.claim(f"r{count - 1}", "k", ""))), Granted)


def dead_readers_before_readers(table: Table, count: int) -> None:
    table.enter("w", "k", "w")
    for number in range(count):
        table.enter(f"d{number}", "k", f"d{number}", "shared", session="mortal")
    table.readers(count)
    table.now = 2.0
    table.measure()
    table.run(cmd.Release(table.claim("w", "k", "w")))
    while table.run(cmd.Sweep(64)).more:
        pass
    assert isinstance(table.run(cmd.Look(table.claim(f"r{count - 1}", "k", ""))), Granted)


def dead_claims_on_a_path(table: Table, count: int) -> None:
    """A subtree is broken that many read, below subtrees that many dead claims wait for."""
    for number in range(count):
        table.enter(f"r{number}", "a/b/c", f"r{number}", "shared", subtree=True)
    for number in range(count):
        table.enter(f"d{number}", ("a", "a/b")[number % 2], f"d{number}", subtree=True, session="mortal")
    table.enter("w", "a/b/c/d", "w")
    table.now = 2.0
    table.measure()
    table.run(cmd.Break("x.lock", "a/b/c", True, 64))
    assert isinstance(table.run(cmd.Look(table.claim("w", "a/b/c/d", "w"))), Place)


def ended_sessions(table: Table, count: int) -> None:
    """Many sessions have ended at once, and one that waits asks for its position."""
    table.enter("h", "k", "h")
    table.enter("w", "k", "w")
    for number in range(count):
        table.run(cmd.Open(Session(f"e{number}", 1.0, 0.0)))
    table.now = 2.0
    table.measure()
    assert isinstance(table.run(cmd.Look(table.claim("w", "k", "w"))), Place)


def readers_wait_for_a_subtree(table: Table, count: int) -> None:
    """Who queues behind readers that all wait for one subtree, each since another moment."""
    for number in range(count):
        table.enter(f"h{number}", f"db/{number}", f"h{number}")
    for number in range(20):
        table.enter(f"q{number}", "q", number, "shared")
        table.enter(f"s{number}", "db", number, "shared", subtree=True)
    table.enter("b", "other", "b")
    table.measure()
    assert isinstance(table.enter("x", "q", "b"), Place)


def readers_wait_for_nested_subtrees(table: Table, count: int) -> None:
    """The same, where each of them waits for another subtree with all of it in it."""
    path = ["db"]
    for number in range(20):
        path.append(f"{path[-1]}/{number}")
    for number in range(count):
        table.enter(f"h{number}", f"{path[-1]}/x{number}", f"h{number}")
    for number in range(20):
        table.enter(f"q{number}", "q", number, "shared")
        table.enter(f"s{number}", path[number], number, "shared", subtree=True)
    table.enter("b", "other", "b")
    table.measure()
    reply = table.enter("x", "q", "b")
    assert isinstance(reply, Place) or reply == cmd.TooEntangled(BOUNDS.search)


def writers_behind_readers(table: Table, count: int) -> None:
    """Who queues behind readers that wait for a writer, before many other writers."""
    table.enter("h", "k", "h")
    for number in range(20):
        table.enter(f"q{number}", "q", number, "shared")
        table.enter(f"k{number}", "k", number, "shared")
    for number in range(count):
        table.enter(f"w{number}", "k", f"w{number}")
    table.enter("b", "other", "b")
    table.enter("c", "another", "c")
    table.enter("y", "q", "c")  # The first search sorts the writers, once.
    table.measure()
    assert isinstance(table.enter("x", "q", "b"), Place)


def readers_of_the_subtree_above(table: Table, count: int) -> None:
    """Who queues behind readers that each wait for a name in a subtree that many others read."""
    for number in range(count):
        table.enter(f"s{number}", "db", f"s{number}", "shared", subtree=True)
    for number in range(20):
        table.enter(f"q{number}", "q", number, "shared")
        table.enter(f"k{number}", f"db/{number}", number)
    table.enter("b", "other", "b")
    table.measure()
    assert isinstance(table.enter("x", "q", "b"), Place)


CASES = [
    entered_again, entered_again_by_one, dead_writers_before_readers, dead_readers_before_readers,
    dead_claims_on_a_path, ended_sessions, readers_wait_for_a_subtree, readers_wait_for_nested_subtrees,
    writers_behind_readers, readers_of_the_subtree_above,
    readers_granted, names_below, session_ended, broken, broken_by_force, queued_behind_readers,
    queued_behind_writers_of_a_path, subtree_above_waiters, ring,
]  # fmt: skip
EACH_ROW_IS_SEEN: dict[object, float] = {
    subtree_above_waiters: 0.5,
    broken: 0.5,
    broken_by_force: 0.5,
    session_ended: 2.5,
    entered_again: 0.25,
    entered_again_by_one: 0.3,
    readers_wait_for_a_subtree: 0.5,
    readers_wait_for_nested_subtrees: 0.5,
}
"""Where a step looks at all rows, how much of a question that may cost for each of them."""


@pytest.mark.parametrize("case", CASES)
def test_no_step_costs_more_because_the_table_holds_more(case: Callable[[Table, int], None]) -> None:
    few, many = Table(), Table()

    case(few, FEW)
    case(many, MANY)

    assert many.worst <= 1.2 * few.worst + 50 + EACH_ROW_IS_SEEN.get(case, 0.0) * (MANY - FEW)
    # A loop that is not counted ends no turn: it would take a line or more for each row.
    assert many.uncounted <= few.uncounted + (MANY - FEW) / 4


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
