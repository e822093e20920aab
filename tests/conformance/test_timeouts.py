"""Many waiters of one client whose wait ends at the same time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import EngineUnavailable, NotAcquired
from tests.conformance.apis import Front
from tests.conformance.stage import Stage
from tests.conformance.turns import THOROUGH

WAITERS = {"aio": 5000 if THOROUGH else 40, "blocking": 200 if THOROUGH else 10}
WAIT, GRACE = 1.0, 1.0
"""How long each caller waits, and how much later it has its answer at the latest: a promise, for each caller."""


def waited_for_cpu() -> dict[str, float]:
    """How long each thread of this process was ready to run while the machine did something else, in seconds.

    The promise cannot include that time. It does include all that the process needs itself.
    """
    told: dict[str, float] = {}
    for thread in Path("/proc/self/task").glob("*"):
        try:
            told[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return told


@pytest.mark.by_turns
async def test_timeouts_at_once_are_answered_in_time_and_name_the_holder_without_an_inspection_each(
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
    took: list[float] = []

    async def miss(waiter: Front) -> None:
        began = time.monotonic()
        try:
            await waiter.lock("k").acquire(wait=WAIT)
        finally:
            took.append(time.monotonic() - began)

    async with locks.lock("warm-up"):  # its session and connections are there
        waiters = [stage.another(locks) for _ in range(WAITERS[stage.api.name])]
    before = waited_for_cpu()
    errors = await asyncio.gather(*(miss(waiter) for waiter in waiters), return_exceptions=True)
    stolen = max((after - before.get(thread, 0.0) for thread, after in waited_for_cpu().items()), default=0.0)

    # Thousands need seconds of CPU, of the engine's server too. Where the machine has none, "unknown" is a true answer.
    busy = THOROUGH and stolen > GRACE / 2
    others = [error for error in errors if not isinstance(error, NotAcquired)]
    assert not others or (busy and all(isinstance(error, EngineUnavailable) for error in others)), set(map(str, others))
    assert max(took) <= WAIT + GRACE + stolen or busy
    assert most <= 1
    named = {tuple(holder.owner for holder in error.holders) for error in errors if isinstance(error, NotAcquired)}
    assert named == {(held.owner,)} or busy or not locks.guarantees.recorded
    await held.release()
    await (await locks.lock("k").acquire(wait=30.0)).release()
