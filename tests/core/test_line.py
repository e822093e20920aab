"""A long line costs no more than a short one, and positions in it are right."""

from __future__ import annotations

from random import Random

import pytest

from holdfast.core.table import Dictionary, apply
from holdfast.core.table.commands import Command, Enter, Leave, Look, Open, Release
from holdfast.core.table.line import Ranks
from holdfast.core.table.rows import Row, Session
from holdfast.model import Claim, Granted, Mode, Place


class Counting(Dictionary):
    """Counts how many rows it looks at."""

    looked = 0

    def alive(self, row: Row, now: float) -> bool:
        self.looked += 1
        return super().alive(row, now)

    def do(self, command: Command, now: float = 1.0) -> object:
        return apply(command, now, self.answer, self.put).reply


def claim(number: int, mode: Mode = "exclusive") -> Claim:
    session = f"s{number % 7}"
    return Claim(f"{session}-{number}", session, f"{session}/{number}", "lock", "hot", mode)


def crowded(waiters: int, mode: Mode = "exclusive") -> Counting:
    table = Counting()
    for number in range(7):
        table.do(Open(Session(f"s{number}", 10.0 + number, 0.0)))
    for number in range(waiters + 1):
        table.do(Enter(claim(number, mode)))
    return table


def looked_at_by(table: Counting, command: Command) -> int:
    before = table.looked
    table.do(command)
    return table.looked - before


@pytest.mark.parametrize("command", [Release(claim(0)), Enter(claim(100_000))], ids=["a hand-off", "a newcomer"])
def test_it_costs_the_same_however_many_wait(command: Command) -> None:
    assert looked_at_by(crowded(5_000), command) == looked_at_by(crowded(10), command) < 10


def test_it_costs_the_same_to_look_at_the_end_of_a_long_line() -> None:
    assert looked_at_by(crowded(5_000), Look(claim(5_000))) == looked_at_by(crowded(10), Look(claim(10)))


def test_one_more_reader_costs_the_same_however_many_read() -> None:
    readers = Enter(claim(100_000, "shared"))
    assert looked_at_by(crowded(5_000, "shared"), readers) == looked_at_by(crowded(10, "shared"), readers)


@pytest.mark.parametrize("waiters", [10, 300])
def test_positions_do_not_count_the_dead_nor_those_who_left(waiters: int) -> None:
    table = crowded(waiters)
    table.do(Leave(claim(3)))
    reply = table.do(Look(claim(waiters)))
    assert isinstance(reply, Place)
    assert reply.position == waiters - 1
    # At 11.0 the session s0 is over, which holds, and waits in every seventh place.
    reply = table.do(Look(claim(waiters)), now=11.0)
    assert isinstance(reply, Place)
    assert reply.position == waiters - 1 - waiters // 7


def test_numbers_below_another_are_counted_right() -> None:
    random, numbers = Random(1), list(range(0, 6_000, 2))
    ranks = Ranks(numbers)
    while numbers:
        for wanted in random.sample(range(-1, 6_001), 5):
            assert ranks.below(wanted) == sum(number < wanted for number in numbers)
        for gone in random.sample(numbers, min(len(numbers), random.choice((1, 40, 400)))):
            ranks.remove(gone)
            numbers.remove(gone)
        if numbers and random.random() < 0.3:
            numbers.append(numbers[-1] + 2)
            ranks.add(numbers[-1])
    assert ranks.below(10**9) == 0


def test_a_name_with_one_claim_is_held_waited_for_and_given_back() -> None:
    table = crowded(0)
    assert not table.lines
    assert isinstance(table.do(Enter(claim(1))), Place)
    assert not table.alone
    table.do(Release(claim(0)))
    assert isinstance(table.do(Look(claim(1))), Granted)
    table.do(Release(claim(1)))
    assert not table.alone
    assert not table.lines
