"""Many waiters of one client whose wait ends at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import NotAcquired
from tests.conformance.apis import Front
from tests.conformance.stage import Stage
from tests.conformance.turns import THOROUGH

WAITERS = {"aio": 5000 if THOROUGH else 40, "blocking": 200 if THOROUGH else 10}


@pytest.mark.by_turns
async def test_timeouts_at_once_name_the_holder_without_an_inspection_each(
    stage: Stage, locks: Front, rival: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = await rival.lock("k").acquire()
    verbs = locks.target._core.verbs
    inspect, under_way, most = verbs.inspect, 0, 0

    async def counted(*args: Any) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await inspect(*args)
        finally:
            under_way -= 1

    monkeypatch.setattr(verbs, "inspect", counted)
    waiters = [stage.another(locks) for _ in range(WAITERS[stage.api.name])]
    waits = [waiter.lock("k").acquire(wait=1.0) for waiter in waiters]
    errors = await asyncio.gather(*waits, return_exceptions=True)

    assert {type(error) for error in errors} == {NotAcquired}, {str(error) for error in errors}
    assert most <= 1
    named = {tuple(holder.owner for holder in error.holders) for error in errors if isinstance(error, NotAcquired)}
    assert named == {(held.owner,)} or not locks.guarantees.recorded
