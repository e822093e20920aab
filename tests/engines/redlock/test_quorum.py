"""The arithmetic of majorities."""

from __future__ import annotations

import pytest

from holdfast.core import quorum


@pytest.mark.parametrize(("nodes", "needed"), [(3, 2), (4, 3), (5, 3), (6, 4), (7, 4)])
def test_a_majority_is_more_than_half(nodes: int, needed: int) -> None:
    assert quorum.majority(nodes) == needed
    assert quorum.reached(needed, nodes)
    assert not quorum.reached(needed - 1, nodes)


@pytest.mark.parametrize("nodes", range(3, 10))
def test_two_majorities_have_a_node_in_common(nodes: int) -> None:
    assert 2 * quorum.majority(nodes) > nodes


def test_so_many_against_leave_no_majority() -> None:
    assert not quorum.out_of_reach(2, 5)
    assert quorum.out_of_reach(3, 5)
    assert quorum.out_of_reach(2, 4)


def test_a_token_is_confirmed_if_a_majority_has_proposed_just_that() -> None:
    assert quorum.confirmed([7, 7, 7, 5], 5)
    assert not quorum.confirmed([7, 7, 5, 5, 5], 5)
    assert quorum.token_of([5, 7, 5]) == 7


def test_validity_counts_from_before_the_first_request_and_leaves_room_for_drift() -> None:
    assert quorum.left(10.0, 100.0, 103.0) == pytest.approx(10.0 - 3.0 - 0.15)
    assert quorum.left(10.0, 100.0, 109.9) < 0
