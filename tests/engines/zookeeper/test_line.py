"""The order of a line, and who waits for whom in it."""

from __future__ import annotations

import random

import pytest

from holdfast.engines.zookeeper.line import Position, count_holding, in_order, position, read

HIGHEST, LOWEST = 2**31 - 1, -(2**31)


def node(number: int, what: str = "x", claim: str = "") -> str:
    """A node's name with the suffix that ZooKeeper makes."""
    return f"{what}.{claim or f'c{number}-1'}.{number:010d}"


def test_a_name_tells_what_is_claimed() -> None:
    stand = read(node(-5, "p4t", "0a1b2c3d4e5f-17"))

    assert stand is not None
    assert (stand.claim, stand.session, stand.limit, stand.waits) == ("0a1b2c3d4e5f-17", "0a1b2c3d4e5f", 4, False)
    assert stand.number == -5
    assert read("lock-0000000001") is None


@pytest.mark.parametrize(
    "numbers",
    [
        [0, 1, 9, 10, 11],
        [HIGHEST - 1, HIGHEST, LOWEST, LOWEST + 1],
        [LOWEST, LOWEST + 1],
        [-2, -1, 0, 1],
        [HIGHEST],
    ],
)
def test_arrival_is_the_order_also_where_the_counter_wraps(numbers: list[int]) -> None:
    shuffled = [node(number) for number in numbers]
    random.Random(1).shuffle(shuffled)

    assert [stand.number for stand in in_order(shuffled)] == numbers


def test_as_text_a_wrapped_number_would_go_before_a_live_holder() -> None:
    """The control: what kazoo's recipe compares."""
    holder, late = f"{HIGHEST:010d}", f"{LOWEST:010d}"

    assert late < holder


def stand_of(nodes: list[str], index: int) -> Position:
    found = position(in_order(nodes), nodes[index])
    assert found is not None
    return found


def test_a_writer_waits_for_the_one_before_it() -> None:
    nodes = [node(1), node(2), node(3, "s"), node(4)]

    assert stand_of(nodes, 0) == (True, 0, None, False)
    assert stand_of(nodes, 1)[:3] == (False, 1, nodes[0])
    assert stand_of(nodes, 3)[:3] == (False, 3, nodes[2])


def test_a_reader_waits_for_the_nearest_writer_before_it() -> None:
    nodes = [node(1, "s"), node(2), node(3, "s"), node(4, "s")]

    assert stand_of(nodes, 0).held
    assert stand_of(nodes, 3)[:3] == (False, 3, nodes[1])


def test_the_leading_run_of_readers_holds() -> None:
    nodes = [node(1, "s"), node(2, "s"), node(3), node(4, "s")]

    assert count_holding(in_order(nodes)) == 2
    assert [stand_of(nodes, index).held for index in range(4)] == [True, True, False, False]


def test_the_first_without_a_permit_waits_for_any_and_the_next_for_the_one_before() -> None:
    nodes = [node(number, "p2") for number in range(4)]

    assert [stand_of(nodes, index).held for index in range(4)] == [True, True, False, False]
    assert stand_of(nodes, 2) == (False, 1, None, True)
    assert stand_of(nodes, 3) == (False, 2, nodes[2], False)


def test_a_claim_that_is_not_there_has_no_position() -> None:
    assert position(in_order([node(1)]), node(2)) is None
