"""The paths of one session's nodes, which all go into the transaction that ends the session."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
from holdfast import EngineUnavailable, NotAcquired
from holdfast.core.table.rows import Session
from holdfast.engines.zookeeper.ledger import A_LENGTH, Entry, Ledger, Member, SessionPaths
from holdfast.engines.zookeeper.life import Life
from holdfast.model import Claim
from tests.faults.injection import Injected, Moments, count_moments

NAME = "n" * 100
FEW = 1_000
"""Room for a few claims on such names."""


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SessionPaths, "MOST", FEW)


def fill(locks: holdfast.Client) -> list[holdfast.Grant]:
    """Take locks until the client may take no more."""
    held: list[holdfast.Grant] = []

    def take_all() -> None:
        while True:
            held.append(locks.lock(f"{NAME}{len(held)}").acquire())

    with pytest.raises(EngineUnavailable, match="as many claims as ZooKeeper can end with one session") as refused:
        take_all()
    assert refused.value.outcome == "not done"
    return held


@pytest.mark.usefixtures("few")
def test_a_client_is_refused_before_its_session_is_too_long_to_be_ended(url: str) -> None:
    with holdfast.connect(url) as locks:
        held = fill(locks)
        paths = locks._core.engine.ledger.members[locks._core.session.id].paths  # type: ignore[attr-defined,union-attr]

        assert 2 < len(held) < FEW // 100
        assert 0 < paths._total <= FEW
        held.pop().release()
        locks.lock(f"{NAME}x").acquire().release()
        for grant in held:
            grant.release()
        assert paths._total == 0


@pytest.mark.usefixtures("few")
def test_what_was_refused_missed_or_adopted_counts_no_longer_than_it_is_there(url: str) -> None:
    with holdfast.connect(url) as locks, holdfast.connect(url) as rival:
        held = rival.lock(NAME).acquire()
        locks.lock("warm").acquire().release()
        paths = locks._core.engine.ledger.members[locks._core.session.id].paths  # type: ignore[attr-defined,union-attr]
        for _ in range(FEW // 50):
            assert locks.lock(NAME).try_acquire() is None
            with pytest.raises(NotAcquired):
                locks.lock(NAME).acquire(wait=0.01)
        with pytest.raises(holdfast.NotHeld):
            locks.adopt(held.hand_over()[:-1])
        assert paths._total == 0
        adopted = locks.adopt(held.hand_over())
        assert paths._total > 0
        adopted.release()

        assert paths._total == 0


def test_a_claim_counts_once_and_with_the_bytes_of_its_paths() -> None:
    paths = SessionPaths()

    assert paths.reserve("c", "/\u00e4/", "/b")
    assert paths.reserve("c", "/\u00e4/", "/b")
    assert paths._total == 4 + 2 + 2 * A_LENGTH
    paths.free("c")
    paths.free("c")
    assert paths._total == 0


def forgetting() -> tuple[Member, Callable[[], None]]:
    """A session with one claim, and what forgets that claim."""
    ledger = Ledger("zookeeper://")
    link: Any = SimpleNamespace(over=None, shorter=None, gone={}, drop_watch=lambda *_: None)
    life = Life(0.0, 0.0, inf, 0.0)
    member = ledger.members["s"] = Member(ledger.lock, link, Session("s", 10.0, 0.0), life)
    claim = Claim("s-0", "s", "o", "n.lock", "k")
    assert member.paths.reserve("s-0", "/k")
    entry = member.enrol(Entry(claim, link, "/k", "x.s-0", {}, member.join("/k")))
    return member, lambda: ledger.forget(entry)


def test_an_interrupt_while_a_claim_is_forgotten_keeps_nothing_of_it() -> None:
    moments = count_moments(forgetting()[1])
    for at in range(moments):
        member, forget = forgetting()
        fault = Moments(at, Injected)
        with suppress(Injected):
            fault.run(forget)
        # What the client does for a claim that an ended call has left.
        forget()
        assert (member.claims, member.views, member.paths._total) == ({}, {}, 0), fault.where
