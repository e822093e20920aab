"""Holders of one name, page by page."""

from __future__ import annotations

import random

from holdfast.core.table.holders import Holders
from holdfast.core.table.places import arrival
from holdfast.core.table.rows import Row
from holdfast.model import Claim
from tests.core.test_ends import lines_run

PAGE = 256
MANY = 20_000


def held(order: int, number: int | None = None) -> Row:
    number = order if number is None else number
    return Row(Claim(f"s-{number}", "s", f"s/{number}", "ns.lock", "k", "shared"), order, 0.0, token=order)


def everything(holders: Holders, most: int) -> list[Row]:
    """All pages."""
    found: list[Row] = []
    place = (-1, "")
    while page := holders.after(place, most, lambda row: True):
        found += page
        place = arrival(page[-1])
    return found


def test_a_late_page_costs_what_an_early_one_costs() -> None:
    holders = Holders()
    for order in range(MANY):
        holders.put(held(order))
    holders.after((-1, ""), PAGE, lambda row: True)

    early = lines_run(lambda: holders.after((PAGE, ""), PAGE, lambda row: True))
    late = lines_run(lambda: holders.after((MANY - 2 * PAGE, ""), PAGE, lambda row: True))

    assert late < 1.5 * early


def test_pages_that_are_taken_away_one_by_one_are_counted_once() -> None:
    """As a break does: the places are not made again for each page."""
    holders = Holders()
    for order in range(MANY):
        holders.put(held(order))

    place = (-1, "")

    def take_page() -> None:
        nonlocal place
        for row in holders.after(place, PAGE, lambda row: True):
            holders.pop(row.id)
            place = arrival(row)

    take_page()
    costs = [lines_run(take_page) for _ in range(8)]

    assert max(costs) < 1.5 * min(costs)


def test_pages_are_in_order_whatever_came_and_went_between_them() -> None:
    chance = random.Random(7)
    for _ in range(300):
        holders = Holders()
        there: dict[int, Row] = {}
        for number in range(chance.randrange(1, 60)):
            if there and chance.random() < 0.4:
                holders.pop(there.pop(chance.choice(list(there))).id)
            else:
                row = held(chance.randrange(40), number)
                holders.put(row)
                there[number] = row
            if chance.random() < 0.5:
                assert everything(holders, chance.randrange(1, 9)) == sorted(there.values(), key=arrival)
