"""A cancellation at any await of a call leaves nothing behind.

Each operation, on each engine, is cancelled at each of its suspensions, and there in four ways.
After a ttl nothing is held or queued, the client works, and no call took longer than it may.
`make test` takes a few suspensions of each operation, `make marathon` all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import product
from typing import get_args

import pytest

from holdfast import aio
from holdfast.locks.client import Client
from tests.conformance.engines import ENGINES, Subject
from tests.conformance.turns import THOROUGH
from tests.faults.cancellation import When, cancelled_at, count_suspensions
from tests.interrupts.cancelled_operations import CANCELLED, Cancelled, Pair, Work
from tests.interrupts.test_every_moment import SPARE, TTL, chosen


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "subject" in metafunc.fixturenames:
        subjects = [subject for subject in ENGINES if THOROUGH or subject.like is None]
        metafunc.parametrize("subject", subjects, ids=lambda subject: subject.name)
        metafunc.parametrize("operation", CANCELLED, ids=lambda operation: operation.name)


async def left(rival: aio.Client, names: list[str]) -> list[str]:
    """Those of these names on which there is still a claim."""
    if rival.guarantees.recorded:
        return [info.name for info in await rival.list()]
    return [name for name in names if not await can_be_taken(rival, name)]


async def can_be_taken(rival: aio.Client, name: str) -> bool:
    grant = await rival.lock(name).try_acquire()
    if grant is not None:
        await grant.release()
    return grant is not None


async def cancel_everywhere(pair: Pair, operation: Cancelled, of: str) -> dict[str, str]:
    """Cancel it at the chosen suspensions; by name, where it was cancelled."""
    where: dict[str, str] = {}

    async def begin(at: str) -> tuple[str, Work, Work]:
        name = f"{operation.name.replace(' ', '-')}-{at}"
        return name, *await operation.prepare(pair, name)

    suspensions = 0
    for warm in range(2):
        _, work, afterwards = await begin(f"warm-{warm}")
        suspensions = max(suspensions, await count_suspensions(work()))
        await afterwards()
    cases = list(product(range(suspensions), get_args(When)))
    for case in chosen(len(cases), of):
        at, when = cases[case]
        name, work, afterwards = await begin(f"{at}-{when.replace(' ', '-')}")
        cancelling = await cancelled_at(work(), at, when, operation.limit + SPARE)
        where[name] = f"{when}, {cancelling.where}"
        await asyncio.wait_for(afterwards(), 10.0)
    return where


async def check(subject: Subject, operation: Cancelled, url: str) -> None:
    """Cancel an operation everywhere, and look for what is left after a ttl."""
    async with AsyncExitStack() as stack:

        async def connect() -> aio.Client:
            return await stack.enter_async_context(aio.connect(url, ttl=TTL))

        pair = Pair(await connect(), await connect(), connect)
        if not operation.can(pair.locks.guarantees):
            assert operation.name not in ("with", "release"), "every engine has a plain lock"
            return
        where = await cancel_everywhere(pair, operation, f"{subject.name} {operation.name}")
        until = time.monotonic() + TTL + subject.lag + 2 * SPARE
        while still := await left(pair.rival, list(where)):
            assert time.monotonic() < until, f"left behind: {[(name, where.get(name)) for name in still]}"
            await asyncio.sleep(0.05)
        async with pair.locks.lock("afterwards", wait=1.0) as grant:
            assert grant.valid


async def test_a_cancellation_at_any_await_leaves_nothing_behind(
    subject: Subject, operation: Cancelled, fresh_url: Callable[[Subject], str]
) -> None:
    await check(subject, operation, fresh_url(subject))


async def test_a_claim_that_is_not_withdrawn_is_found(
    fresh_url: Callable[[Subject], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = ENGINES[0]
    waits = next(operation for operation in CANCELLED if operation.name == "a wait for a permit that is granted")

    async def forget(*_: object) -> bool:
        return True

    monkeypatch.setattr(Client, "withdraw", forget)
    with pytest.raises(AssertionError, match="left behind"):
        await check(memory, waits, fresh_url(memory))
