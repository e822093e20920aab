"""What one client piles up along a path, on a semaphore or in line costs the others nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.table import Dictionary, apply, holders
from holdfast.core.table.commands import (
    Adopt,
    Command,
    Enter,
    HandOver,
    Leave,
    Look,
    Open,
    Release,
    Sweep,
    WrongLimit,
)
from holdfast.core.table.holders import Slots
from holdfast.core.table.permits import free_slots
from holdfast.core.table.rows import Session
from holdfast.model import Claim, Granted, Mode, Place
from tests.core.test_ends import lines_run
from tests.core.test_stores_agree import Stores
from tests.core.walk import walk

FEW, MANY = 70, 700
"""Both are more than what is looked through rather than sorted."""


class Table(Dictionary):
    """One session, whose claims are known by what comes after its name."""

    def __init__(self) -> None:
        super().__init__()
        self.do(Open(Session("s", 1e6, 0.0)))

    def do(self, command: Command) -> Any:
        return apply(command, 1.0, self.answer, self.put).reply

    def enter(self, id_: object, name: str, owner: object = None, **rest: Any) -> Any:
        return self.do(Enter(self.claim(id_, name, owner, **rest)))

    def claim(self, id_: object, name: str, owner: object = None, **rest: Any) -> Claim:
        return Claim(f"s-{id_}", "s", f"s/{owner or id_}", rest.pop("kind", "lock"), name, **rest)

    def release(self, id_: object) -> Any:
        return self.do(Release(self.rows[f"s-{id_}"].claim))

    def holds(self, id_: object) -> bool:
        return self.rows[f"s-{id_}"].token is not None


def readers_of_the_subtree(size: int) -> tuple[Table, Command]:
    """They wait for one below; another one below goes."""
    table = Table()
    table.enter("held", "a/held")
    table.enter("goes", "a/goes")
    for number in range(size):
        table.enter(number, "a", mode="shared", subtree=True)
    return table, Release(table.claim("goes", "a/goes"))


def readers_in_the_subtree(size: int) -> tuple[Table, Command]:
    """They wait for two who have, and want, all of it; the first of these goes."""
    table = Table()
    table.enter("goes", "a", subtree=True)
    table.enter("next", "a", subtree=True)
    for number in range(size):
        table.enter(number, f"a/{number}", mode="shared")
    return table, Release(table.claim("goes", "a", subtree=True))


def writers_in_the_subtree(size: int) -> tuple[Table, Command]:
    """They wait for two who read all of it; one of these goes."""
    table = Table()
    table.enter("goes", "a", mode="shared", subtree=True)
    table.enter("stays", "a", mode="shared", subtree=True)
    for number in range(size):
        table.enter(number, f"a/{number}")
    return table, Release(table.claim("goes", "a", mode="shared", subtree=True))


def somebody_behind_them(size: int) -> tuple[Table, Command]:
    """They stand in line in a subtree, and one who came later and wanted all of it gives up."""
    table, _ = readers_in_the_subtree(size)
    table.enter("last", "a", subtree=True)
    return table, Leave(table.claim("last", "a", subtree=True))


def holders_in_the_subtree(size: int) -> tuple[Table, Command]:
    """Somebody wants all of it; one of them goes."""
    table = Table()
    for number in range(size):
        table.enter(number, f"a/{number}", mode="shared" if number % 2 else "exclusive")
    table.enter("all", "a", subtree=True)
    return table, Release(table.claim(1, "a/1", mode="shared"))


def readers_over_one(size: int) -> tuple[Table, Command]:
    """They have all of it, and one more reads something in it."""
    table = Table()
    for number in range(size):
        table.enter(number, "a", mode="shared", subtree=True)
    return table, Enter(table.claim("one", "a/one", mode="shared"))


def an_owner_that_waits_for_much(size: int) -> tuple[Table, Command]:
    """And for one thing more."""
    table = Table()
    for number in range(size + 1):
        table.enter(f"held-{number}", f"n{number}")
    for number in range(size):
        table.enter(number, f"n{number}", "patient")
    return table, Enter(table.claim("more", f"n{size}", "patient"))


def readers_and_a_writer_with_something_in_hand(size: int) -> tuple[Table, Command]:
    """It has come for the second time: the first time they are sorted by their owners."""
    table = Table()
    for number in range(size):
        table.enter(number, "k", mode="shared")
    table.enter("mine", "mine", "writer")
    table.enter("once", "k", "writer")
    table.do(Leave(table.claim("once", "k", "writer")))
    return table, Enter(table.claim("again", "k", "writer"))


def readers_one_of_whom_reads_again(size: int) -> tuple[Table, Command]:
    table = Table()
    for number in range(size):
        table.enter(number, "k", mode="shared")
    table.enter("once", "k", 5, mode="shared", reentrant=True)
    return table, Enter(table.claim("again", "k", 5, mode="shared", reentrant=True))


PILES: list[Callable[[int], tuple[Table, Command]]] = [
    readers_of_the_subtree,
    readers_in_the_subtree,
    writers_in_the_subtree,
    somebody_behind_them,
    holders_in_the_subtree,
    readers_over_one,
    an_owner_that_waits_for_much,
    readers_and_a_writer_with_something_in_hand,
    readers_one_of_whom_reads_again,
]


@pytest.mark.parametrize("pile", PILES, ids=lambda pile: pile.__name__)
def test_a_step_costs_the_same_however_much_is_piled_up(pile: Callable[[int], tuple[Table, Command]]) -> None:
    few, many = (lines_run(partial(table.do, command)) for table, command in map(pile, (FEW, MANY)))
    # Finding a place among many takes a few steps more.
    assert many <= few + 50


def full(size: int, adopted: bool = False) -> Table:
    """A semaphore whose permits are all taken, and one in line for it; the last one has its permit from another."""
    table = Table()
    for number in range(size):
        table.enter(number, "p", kind="permit", limit=size)
    if adopted:
        source = table.claim(0, "p", kind="permit", limit=size)
        table.do(HandOver(source, "ticket"))
        table.do(Adopt(table.claim("heir", "p", kind="permit", limit=size), source.id, "ticket"))
        # Whoever looks first after that sorts them.
        table.enter("look", "p", kind="permit", limit=size, waits=False)
    table.enter("waits", "p", kind="permit", limit=size)
    return table


@pytest.mark.parametrize("adopted", [False, True])
@pytest.mark.parametrize("step", ["take", "give", "wait", "look"])
def test_one_permit_costs_the_same_however_many_there_are(step: str, adopted: bool) -> None:
    work = []
    for size in (FEW, MANY):
        table = full(size, adopted)
        claim = partial(table.claim, name="p", kind="permit", limit=size)
        if step == "take":
            table.do(Leave(claim("waits")))
            table.release(3)
        commands: dict[str, Command] = {
            "take": Enter(claim("more")),
            "give": Release(claim(7)),
            "wait": Enter(claim("more")),
            "look": Look(claim("waits")),
        }
        work.append(lines_run(partial(table.do, commands[step])))
        if step == "give":
            assert table.rows["s-waits"].slot == 7
    assert work[1] == work[0]


def test_a_permit_that_is_free_is_the_lowest_one() -> None:
    table = full(100)
    table.do(Leave(table.claim("waits", "p", kind="permit", limit=100)))
    for number in (50, 20, 99):
        table.release(number)
    taken = [table.enter(f"new-{number}", "p", kind="permit", limit=100) for number in range(4)]
    assert [reply.slot for reply in taken[:3]] == [20, 50, 99]
    assert isinstance(taken[3], Place)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=60))
def test_slots_are_free_that_nobody_has(steps: list[tuple[bool, int]]) -> None:
    slots = Slots()
    taken: list[int] = []
    for takes, slot in steps:
        if takes:
            slots.take(slot)
            taken.append(slot)
        elif slot in taken:
            slots.give(slot)
            taken.remove(slot)
        assert [*free_slots(slots.taken, 10)] == [number for number in range(10) if number not in taken]


def test_readers_of_one_name_go_past_readers_of_its_subtree_who_wait_for_something_in_it() -> None:
    table = Table()
    table.enter("writer", "a")
    table.enter("below", "a/b")
    for number in range(4):
        table.enter(number, "a", mode="shared", subtree=bool(number % 2))
    table.enter("last", "a")
    table.enter("too late", "a", mode="shared")

    table.release("writer")

    assert [table.holds(number) for number in range(4)] == [True, False, True, False]
    assert not table.holds("too late")
    table.release("below")
    assert table.holds(1)
    assert table.holds(3)


def test_those_go_on_in_a_subtree_who_came_before_the_next_one_that_wants_all_of_it() -> None:
    table = Table()
    table.enter("first", "a", subtree=True)
    table.enter("x", "a/x")
    table.enter("y", "a/b/y", mode="shared")
    table.enter("next", "a", subtree=True)
    table.enter("z", "a/z")

    table.release("first")

    assert [table.holds(id_) for id_ in ("x", "y", "next", "z")] == [True, True, False, False]
    table.release("x")
    table.release("y")
    assert table.holds("next")
    table.release("next")
    assert table.holds("z")


def test_whoever_entered_again_under_a_subtree_is_named_before_those_who_came_between() -> None:
    table = Table()
    table.enter("first", "a/b", "x", reentrant=True)
    table.enter("second", "a/c")
    table.enter("again", "a/b", "x", reentrant=True)
    table.release("first")

    reply = table.enter("all", "a", subtree=True)

    assert isinstance(reply, Place)
    assert reply.blocker is not None
    assert reply.blocker.claim == "s-again"
    table.release("again")
    table.release("second")
    assert isinstance(table.do(Look(table.claim("all", "a", subtree=True))), Granted)


@pytest.mark.parametrize("seed", range(15))
def test_where_many_hold_it_goes_as_where_few_do(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "SHORT", 0)
    stores = Stores()
    stores.begin_watching()
    walk(stores, seed, steps=120)


@pytest.mark.parametrize(("name", "mode"), [("a/{}", "exclusive"), ("a", "shared")])
def test_an_entry_again_among_very_many_does_not_cost_a_look_at_them(name: str, mode: Mode) -> None:
    def cost(size: int) -> int:
        table = Table()
        table.enter("first", name.format("first"), "x", mode=mode, reentrant=True)
        for number in range(size):
            table.enter(number, name.format(number), mode=mode)
        table.enter("again", name.format("first"), "x", mode=mode, reentrant=True)
        last = Enter(table.claim("last", "a", subtree=True, waits=False))
        return lines_run(lambda: table.do(last))

    assert cost(MANY) <= cost(FEW) + 10


class Mortal(Table):
    """Sessions that die when the test says so, and claims of a kind of one's own on one name."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1.0
        for session, ttl in (("a", 1.0), ("b", 2.0), ("c", 50.0), ("d", 50.0)):
            self.do(Open(Session(session, ttl, 0.0)))

    def do(self, command: Command) -> Any:
        return apply(command, getattr(self, "now", 1.0), self.answer, self.put).reply

    def wish(self, session: str, number: int, limit: int, reentrant: bool = False) -> Claim:
        id_ = f"{session}-{number}"
        return Claim(id_, session, f"{session}/o", "own", "k", limit=limit, reentrant=reentrant)


def test_a_permit_has_its_slot_whoever_went_before_it() -> None:
    table = Mortal()
    table.do(Enter(table.wish("a", 1, 0)))
    table.now += 1.5  # it has died, and is not cleared away yet
    first, second = table.wish("b", 1, 1), table.wish("c", 1, 1)
    assert table.do(Enter(first)).slot == 0
    assert isinstance(table.do(Enter(second)), Place)
    table.now += 1.0  # so has the next
    table.do(Sweep(1))

    assert table.do(Look(second)).slot == 0
    table.do(Sweep())
    assert isinstance(table.do(Enter(table.wish("d", 1, 1))), Place)


def test_a_claim_that_is_not_counted_does_not_enter_a_permit_again() -> None:
    table = Mortal()
    for session in "ac":
        table.do(Enter(table.wish(session, 1, 3)))

    assert table.do(Enter(table.wish("a", 2, 0, reentrant=True))) == WrongLimit(3)
