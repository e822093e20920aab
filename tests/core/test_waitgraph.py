"""Who waits for ever: small cases, and any crowd against the exhaustive reduction."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.waitgraph import Knot, Waiting, find_cycle, finishers
from holdfast.model import Claim, Mode
from tests.core.reference import serves, stuck
from tests.core.test_ends import lines_run

Wish = tuple[str, str, Mode, bool]
wishes = st.lists(
    st.tuples(
        st.sampled_from("xyz"),
        st.sampled_from(("a", "a/b", "c", "p", "p")),
        st.sampled_from(("exclusive", "shared")),
        st.booleans(),
    ),
    max_size=9,
)


def line(*wished: Wish, limit: int = 2) -> list[Waiting]:
    """Claims in the order of their arrival; `p` is a semaphore."""
    found: list[Waiting] = []
    for place, (owner, name, mode, subtree) in enumerate(wished):
        if name == "p":
            claim = Claim(f"s-{place}", "s", owner, "permit", name, limit=limit)
        else:
            claim = Claim(f"s-{place}", "s", owner, "lock", name, mode, subtree)
        found.append(Waiting(claim, place, serves(claim, [other.claim for other in found])))
    return found


def names(cycle: list[Knot]) -> list[tuple[str, str, str]]:
    return [(waits.owner, has.name, waits.name) for waits, has in cycle]


def test_nobody_is_stuck_where_nobody_waits() -> None:
    claims = line(("x", "a", "exclusive", False), ("y", "c", "exclusive", False))
    assert finishers(claims) == {"x", "y"}
    assert find_cycle(claims, "s-1") == []


def test_a_cycle_names_what_each_has_and_waits_for() -> None:
    claims = line(
        ("x", "a/b", "exclusive", False),
        ("y", "c", "exclusive", False),
        ("x", "c", "shared", False),
        ("y", "a", "exclusive", True),
    )
    assert names(find_cycle(claims, "s-3")) == [("y", "c", "a"), ("x", "a/b", "c")]


def test_one_permit_holder_that_goes_on_is_enough() -> None:
    wished: list[Wish] = [
        ("x", "p", "exclusive", False),
        ("y", "p", "exclusive", False),
        ("z", "c", "exclusive", False),
    ]
    first: Wish = ("x", "c", "exclusive", False)
    second: Wish = ("y", "c", "exclusive", False)
    last: Wish = ("z", "p", "exclusive", False)
    assert find_cycle(line(*wished, first, last), "s-4") == []
    assert names(find_cycle(line(*wished, first, second, last), "s-5")) == [("z", "c", "p"), ("x", "p", "c")]


@settings(max_examples=400, deadline=None)
@given(wishes)
def test_whoever_does_not_finish_is_stuck_by_the_reduction(wished: list[Wish]) -> None:
    claims = line(*wished)
    everybody = {waiting.claim.owner for waiting in claims}
    assert everybody - finishers(claims) == stuck([(waiting.order, waiting.claim) for waiting in claims])


def ring(size: int, name: str = "k{}") -> list[Waiting]:
    """Everybody has one and waits for the next one's, in the order in which each has to hear of the one after it."""
    names = [name.format(number) for number in range(size)]
    return line(
        *((f"o{number}", own, "exclusive", False) for number, own in enumerate(names)),
        *((f"o{number}", names[(number + 1) % size], "exclusive", False) for number in range(size)),
    )


@pytest.mark.parametrize("name", ["k{}", "k/{}", "{}/k"])
def test_a_chain_that_is_twice_as_long_takes_twice_the_work(name: str) -> None:
    work = []
    for size in (200, 400):
        claims = ring(size, name)
        assert len(find_cycle(claims, f"s-{2 * size - 1}")) == size
        open_ended = claims[:-1]
        assert finishers(open_ended) == {f"o{number}" for number in range(size)}
        work.append(lines_run(lambda: (find_cycle(claims, claims[-1].claim.id), finishers(open_ended))))  # noqa: B023
    assert work[1] < 2.5 * work[0]


def test_a_way_home_past_many_in_line_looks_at_each_of_them_once() -> None:
    work = []
    for size in (200, 400):
        crowd: list[Wish] = [(f"o{number}", "k", "exclusive", False) for number in range(size)]
        claims = line(
            *((owner, name, "exclusive", False) for owner, name in (("x", "k"), ("y", "c"), ("z", "d"))),
            *crowd,
            *((owner, name, "exclusive", False) for owner, name in (("x", "c"), ("y", "d"), ("z", "k"))),
        )
        assert names(find_cycle(claims, claims[-1].claim.id)) == [("z", "d", "k"), ("x", "k", "c"), ("y", "c", "d")]
        work.append(lines_run(lambda: find_cycle(claims, claims[-1].claim.id)))  # noqa: B023
    assert work[1] < 2.5 * work[0]
