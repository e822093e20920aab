"""Kept values end by the server's clock, whatever the time of day is where somebody looks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast.engines.zookeeper import server_clock
from holdfast.locks.cell import CellFront
from holdfast.runtime.blocking import run
from tests.engines.zookeeper.patience import eventually

HOUR = 3600.0

Shift = Callable[[float], None]


@pytest.fixture
def shift(monkeypatch: pytest.MonkeyPatch) -> Shift:
    """Set this process's time of day; the server's own goes on as it was."""
    real = time.time
    return lambda seconds: monkeypatch.setattr(time, "time", lambda: real() + seconds)


@pytest.fixture
def near(url: str) -> Iterator[holdfast.Client]:
    with holdfast.connect(url) as client:
        yield client


def keep(client: holdfast.Client, value: str, seconds: float, version: int | None = None) -> None:
    """Write the cell that all tests here use, to be kept for so long."""
    run(CellFront(client._core, "cell", "c", seconds).set(value, version))


def charge(result: str) -> Callable[[object], str]:
    """Work that must not be done twice."""
    return lambda grant: result


def test_what_is_recorded_stays_recorded_for_whoever_has_a_fast_clock(
    near: holdfast.Client, url: str, shift: Shift
) -> None:
    near.once("pay", keep=HOUR).run(charge("receipt"))
    shift(HOUR + 60)
    with holdfast.connect(url) as fast:
        assert fast.once("pay", keep=HOUR).run(charge("charged again")) == "receipt"


def test_what_is_recorded_stays_recorded_for_a_holder_whose_clock_is_set_ahead(
    near: holdfast.Client, url: str, shift: Shift
) -> None:
    """Its session was opened, and the server's clock seen, before that."""
    near.once("pay", keep=HOUR).run(charge("receipt"))
    with holdfast.connect(url, ttl=60.0) as fast, fast.lock("k"):
        shift(HOUR + 60)
        assert fast.once("pay", keep=HOUR).run(charge("charged again")) == "receipt"


def test_a_kept_value_is_not_overwritten_as_if_it_were_gone_by_a_fast_clock(
    near: holdfast.Client, url: str, shift: Shift
) -> None:
    keep(near, "kept", HOUR)
    shift(HOUR + 60)
    with holdfast.connect(url) as fast, pytest.raises(holdfast.Conflict):
        keep(fast, "mine", HOUR, version=0)


def test_a_kept_value_ends_for_whoever_has_a_slow_clock(near: holdfast.Client, url: str, shift: Shift) -> None:
    keep(near, "brief", 0.5)
    shift(-HOUR)
    with holdfast.connect(url) as slow:
        eventually(lambda: slow.cell("c").get() == (None, 0), "the end of the value")


def test_a_value_ends_only_by_a_look_at_the_servers_clock_that_is_not_old(
    near: holdfast.Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was seen long ago has drifted, or belonged to another leader."""
    keep(near, "kept", HOUR)
    with holdfast.connect(url) as other:
        assert other.cell("c").get()[0] == "kept"
        engine: Any = other._core.engine
        (link,) = engine.ledger.links()
        link.clock._ahead += 2 * HOUR
        assert other.cell("c").get()[0] is None  # as long as it is believed

        monkeypatch.setattr(server_clock, "FRESH", 0.0)
        assert other.cell("c").get()[0] == "kept"
