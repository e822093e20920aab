"""A long line costs no more than a short one, and positions in it are right."""

from __future__ import annotations

from bisect import insort
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from holdfast.core.table import Dictionary, apply
from holdfast.core.table.admission import MOST_DETAIL
from holdfast.core.table.commands import (
    Adopt,
    Command,
    Deadlocked,
    Enter,
    Fetch,
    HandOver,
    Leave,
    Letters,
    Look,
    Open,
    Release,
    Subscribe,
)
from holdfast.core.table.places import START, Places
from holdfast.core.table.rows import Row, Session
from holdfast.model import Claim, Granted, Mode, Place
from tests.core.test_ends import lines_run


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


def test_places_are_found_in_order_however_they_come_and_go() -> None:
    random = Random(1)
    there = [(order, "x") for order in range(0, 6_000, 2)]
    places = Places(there)
    while there:
        for wanted in random.sample(range(-1, 6_001), 5):
            below = [place for place in there if place < (wanted, "")]
            assert places.below(wanted) == len(below)
            assert list(places.before(wanted)) == below[::-1]
            assert list(places.after((wanted, "x"))) == [place for place in there if place > (wanted, "x")]
        for gone in random.sample(there, min(len(there), random.choice((1, 40, 400)))):
            places.remove(gone)
            there.remove(gone)
        for order in random.sample(range(6_000), random.choice((0, 20, 150)) if len(there) > 1_000 else 0):
            if (order, "y") not in there:
                places.add((order, "y"))
                insort(there, (order, "y"))
    assert places.below(10**9) == 0
    assert not list(places.after(START))


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


@pytest.mark.parametrize("limit", [0, 3], ids=["lock", "semaphore"])
def test_to_get_in_line_with_something_in_hand_costs_the_same_behind_thousands(limit: int) -> None:
    looked = []
    for waiters in (10, 2_000):
        table = Counting()
        table.do(Open(Session("s", 10.0, 0.0)))
        for number in range(waiters + 4):
            owner = f"s/{number}"
            table.do(Enter(Claim(f"s-h{number}", "s", owner, "lock", f"own-{number}")))
            table.looked = 0
            table.do(Enter(Claim(f"s-w{number}", "s", owner, "hot", "hot", limit=limit)))
        looked.append(table.looked)
    assert looked[1] == looked[0]


def test_readers_who_go_in_together_are_looked_at_once_each() -> None:
    work = []
    for readers in (100, 200):
        table = crowded(0)
        for number in range(1, readers + 1):
            table.do(Enter(claim(number, "shared")))
        table.do(Enter(claim(readers + 1)))
        work.append(lines_run(partial(table.do, Release(claim(0)))))
        assert len(table.lines["lock", "hot"].holders) == readers
    assert work[1] <= 2.1 * work[0]


def test_a_writer_finds_out_at_once_that_others_read() -> None:
    writer = Enter(replace(claim(100_000), waits=False))
    few, many = (lines_run(partial(crowded(readers, "shared").do, writer)) for readers in (10, 5_000))
    assert many == few


@pytest.mark.parametrize("last", [0, 9])
def test_whoever_adopted_the_first_grant_is_the_first_of_those_who_read(last: int) -> None:
    table = crowded(9, "shared")
    source, heir = claim(0, "shared"), claim(100, "shared")
    table.do(HandOver(source, "ticket"))
    assert isinstance(table.do(Adopt(heir, source.id, "ticket")), Granted)
    for number in range(1, last + 1):
        table.do(Release(claim(number, "shared")))

    reply = table.do(Enter(claim(200)))
    assert isinstance(reply, Place)
    assert reply.blocker is not None
    assert reply.blocker.claim == heir.id


def test_an_owner_that_waits_for_much_adopts_with_one_search() -> None:
    asked = []
    for waits in (20, 40):
        table = crowded(0)
        table.do(HandOver(claim(0), "ticket"))
        for number in range(waits):
            table.do(Enter(Claim(f"s1-h{number}", "s1", "s1/other", "lock", f"name-{number}")))
            table.do(Enter(Claim(f"s1-w{number}", "s1", "s1/heir", "lock", f"name-{number}")))
        heir = replace(claim(1), owner="s1/heir")
        asked.append(looked_at_by(table, Adopt(heir, claim(0).id, "ticket")))
    assert asked[1] <= 2.1 * asked[0]


def test_an_event_of_a_long_deadlock_is_short_and_the_refusal_whole() -> None:
    table = crowded(0)
    for number in range(200):
        table.do(Enter(Claim(f"s1-h{number}", "s1", f"s1/{number}", "lock", f"name-{number}")))
    for number in range(199):
        table.do(Enter(Claim(f"s1-w{number}", "s1", f"s1/{number}", "lock", f"name-{number + 1}")))
    table.do(Subscribe("s2", "w", "lock", ""))

    refused = table.do(Enter(Claim("s1-last", "s1", "s1/199", "lock", "name-0")))

    assert isinstance(refused, Deadlocked)
    assert len(refused.cycle) == 200
    letters = table.do(Fetch("s2", "w", 0))
    assert isinstance(letters, Letters)
    assert [(event.type, len(event.detail)) for event in letters.events] == [("deadlock", MOST_DETAIL)]
