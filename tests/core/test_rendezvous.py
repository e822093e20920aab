"""Rendezvous hashing: even shares, and only a leaver's keys move."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.rendezvous import Seat, choose, weight

KEYS = [f"key-{number}" for number in range(3000)]


def seats(*members: str) -> list[Seat]:
    return [Seat(f"claim-{number}", member) for number, member in enumerate(members)]


def owners(chosen: list[Seat]) -> dict[str, str]:
    found = {key: choose(chosen, key) for key in KEYS}
    return {key: seat.member for key, seat in found.items() if seat is not None}


def test_nobody_owns_what_nobody_shares() -> None:
    assert choose([], "k") is None


def test_a_weight_is_the_same_in_every_release() -> None:
    assert weight("a", "k").hex() == "356b5655ed645bdb"


def test_shares_are_even() -> None:
    counts = Counter(owners(seats("a", "b", "c", "d", "e")).values())

    assert all(abs(count - 600) < 120 for count in counts.values())


def test_only_a_leavers_keys_move() -> None:
    before, after = owners(seats("a", "b", "c", "d")), owners(seats("a", "b", "d"))

    assert {key for key in KEYS if before[key] != after[key]} == {key for key in KEYS if before[key] == "c"}


@given(st.lists(st.text(max_size=8), min_size=1, max_size=8, unique=True), st.text(max_size=20))
def test_the_order_of_members_does_not_matter(members: list[str], key: str) -> None:
    first = choose(seats(*members), key)
    second = choose(seats(*reversed(members)), key)

    assert first is not None
    assert second is not None
    assert first.member == second.member


def test_of_two_with_one_name_the_later_owns() -> None:
    assert choose(seats("a", "a"), "k") == Seat("claim-1", "a")
