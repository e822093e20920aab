"""Whoever observes an election is told who leads now, however much has happened since it last looked."""

from __future__ import annotations

import pytest

import holdfast


def test_an_observer_that_was_away_for_long_is_told_who_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("step", "views"):
        monkeypatch.setattr(f"holdfast.core.table.{module}.MOST_LETTERS", 10)
    with holdfast.connect("memory://observed") as locks, locks.election("e", value="me").observe() as leaders:
        assert next(leaders) is None
        for _ in range(10):
            with locks.lock("e"):
                pass
        grant = locks.election("e", value="you").campaign()
        leader = next(leaders)
        grant.release()

    assert leader is not None
    assert leader.value == "you"
