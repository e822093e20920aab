"""What one client knows of a queue, compared with the whole queue after every change."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from holdfast.engines.zookeeper.line import WRAP, in_order, position
from holdfast.engines.zookeeper.queue_view import QueueView

LINK: Any = None
STARTS = (0, 7, 2**31 - 4, -4)


def node(number: int, what: str = "x") -> str:
    wrapped = (number + WRAP // 2) % WRAP - WRAP // 2
    return f"{what}.s-{number % 1000}.{wrapped:010d}"


@pytest.fixture
def view() -> QueueView:
    return QueueView(LINK, "/queue", threading.RLock())


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("seed", range(20))
def test_a_view_never_says_that_a_claim_holds_which_does_not(seed: int, start: int) -> None:
    """Others come and go unseen; own claims are told as the server tells them."""
    chance, view = random.Random(seed), QueueView(LINK, "/queue", threading.RLock())
    there: list[str] = []
    own: set[str] = set()
    number = start
    for _ in range(300):
        act = chance.choice(["own", "other", "other goes", "own goes", "list", "gone", "known"])
        if act in ("own", "other"):
            made = node(number, chance.choice("xxs"))
            number += 1
            there.append(made)
            if act == "own":
                own.add(made)
                view.add(made)
        elif act == "list":
            view.take(chance.sample(there, len(there)))
        elif act == "own goes" and own:
            gone = chance.choice(sorted(own))
            own.discard(gone)
            there.remove(gone)
            view.removed(gone)
        elif act in ("other goes", "gone", "known") and set(there) - own:
            gone = chance.choice(sorted(set(there) - own))
            there.remove(gone)
            if act != "other goes":
                view.gone(gone)
            if act == "known":
                view.removed(gone)
        for one in own:
            if view.knows(one):
                right, found = position(in_order(there), one), view.position(one)
                assert right is not None
                assert found is not None
                assert right.held or not found.held
                assert found.place >= right.place
    view.take(there)
    for one in own:
        assert view.position(one) == position(in_order(there), one)


def test_own_claims_that_follow_the_list_are_known_without_another_one(view: QueueView) -> None:
    view.take([node(1), node(2)])
    view.add(node(3))
    view.add(node(4))

    assert view.knows(node(4))
    assert view.position(node(4)) == (False, 3, node(3), False)


def test_a_claim_behind_one_that_is_not_in_the_list_is_not_known(view: QueueView) -> None:
    view.take([node(1)])
    view.add(node(3))

    assert not view.knows(node(3))
    view.take([node(1), node(2), node(3)])
    assert view.knows(node(3))


def test_a_node_that_is_gone_is_a_doubt_until_its_removal_is_known(view: QueueView) -> None:
    view.take([node(1), node(2), node(3)])
    view.gone(node(1))

    assert not view.knows(node(2))
    assert view.waits_for(node(2), node(1))
    assert not view.waits_for(node(3), node(1))
    view.removed(node(1))
    assert view.knows(node(2))
    held = view.position(node(2))
    assert held is not None
    assert held.held


def test_a_claim_with_two_doubts_before_it_waits_for_neither(view: QueueView) -> None:
    view.take([node(1), node(2), node(3)])
    view.gone(node(1))
    view.gone(node(2))

    assert not view.waits_for(node(3), node(2))
