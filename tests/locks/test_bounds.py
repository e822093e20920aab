"""Numbers that nobody can mean are refused before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

import holdfast
from holdfast import InvalidRequest, aio

ABSURD: list[Any] = [10**400, -(10**400), 1e300, 2**63, 10**12, nan, -inf, -1, True, "5", 1 + 1j]
COUNTS: list[Any] = [10**400, 2**63, 10**9 + 1, 0, -1, 1.5, nan, inf, True, "5"]

SECONDS: dict[str, Callable[[Any, Any], Any]] = {
    "wait": lambda locks, value: locks.lock("k", wait=value),
    "wait of a call": lambda locks, value: locks.lock("k").acquire(wait=value),
    "wait for all": lambda locks, value: locks.lock_all("k", "l").acquire(wait=value),
    "wait of a campaign": lambda locks, value: locks.election("k").campaign(wait=value),
    "wait at a barrier": lambda locks, value: locks.barrier("k", 2).wait(wait=value),
    "wait at a latch": lambda locks, value: locks.latch("k", 2).wait(wait=value),
    "wait of a run": lambda locks, value: locks.once("k").run(lambda grant: None, wait=value),
    "wait for a row": lambda locks, value: locks.row_lock(object(), "table", 1, wait=value),
    "max_hold": lambda locks, value: locks.semaphore("k", 2, max_hold=value),
    "keep of a latch": lambda locks, value: locks.latch("k", 2, keep=value),
    "keep of a record": lambda locks, value: locks.once("k", keep=value),
    "keep of a run": lambda locks, value: locks.once("k").run(lambda grant: None, keep=value),
}
NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "limit": lambda locks, value: locks.semaphore("k", value),
    "parties": lambda locks, value: locks.barrier("k", value),
}
LONG_NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "count": lambda locks, value: locks.latch("k", value),
    "n": lambda locks, value: locks.latch("k", 2).count_down(value),
    "expected": lambda locks, value: locks.log("k").append(["event"], value),
    "from_": lambda locks, value: locks.log("k").read(value),
    "before": lambda locks, value: locks.log("k").trim(value),
    "version": lambda locks, value: locks.cell("k").set("value", value),
    "retries": lambda locks, value: locks.cell("k").update(lambda value: value, value),
}
CASES = [
    *((call, value) for call in SECONDS.values() for value in ABSURD),
    *((call, value) for call in NUMBERS.values() for value in COUNTS),
    *((call, value) for call in LONG_NUMBERS.values() for value in (10**400, 2**53, -1, 1.5, nan, True, "5")),
]


def test_every_absurd_number_is_refused_before_anything_is_sent() -> None:
    with holdfast.connect("memory://bounds") as locks:
        for call, value in CASES:
            with pytest.raises(InvalidRequest):
                call(locks, value)
        assert locks._core.keeper is None


async def test_every_absurd_number_is_refused_by_asyncio_before_anything_is_sent() -> None:
    async with aio.connect("memory://bounds") as locks:
        for call, value in CASES:
            with pytest.raises(InvalidRequest):
                await call(locks, value)
        assert locks._core.keeper is None


@pytest.mark.parametrize("value", ABSURD)
def test_a_client_is_not_opened_with_an_absurd_time(value: Any) -> None:
    with pytest.raises(InvalidRequest):
        holdfast.connect("memory://bounds", ttl=value)
    with pytest.raises(InvalidRequest):
        aio.connect("memory://bounds", max_stall=value)


def test_the_longest_times_are_taken() -> None:
    ten_years = 10 * 365 * 86_400
    with holdfast.connect("memory://longest", ttl=86_400) as locks:
        for seconds in (ten_years, inf, None):
            with locks.lock("k", wait=seconds, max_hold=seconds) as grant:
                assert grant.valid
        locks.latch("k", 1, keep=ten_years).count_down()
