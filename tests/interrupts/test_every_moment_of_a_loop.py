"""An exception that a signal handler raises in the loop's thread, at any moment of what tasks do.

It may come inside a task, or inside what the loop calls to write or to read for all tasks. A task gets its own reply,
or an error, in time. After a ttl nothing is held, the same client works, and so does a new one. `make test`
takes a few moments, `make marathon` all of them.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from types import FrameType
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast.runtime.asyncio import _finish, go_on
from tests.conformance.engines import ENGINES, Subject
from tests.conformance.turns import THOROUGH
from tests.faults.injection import NEVER_RAN, PRODUCT, Injected, Moments

TTL = 2.0
RIVAL_TTL = 10.0
"""On a busy machine, the client that is not interrupted must not lose what it holds."""
WAIT = 1.0
LIMIT = WAIT + 1.0 + 1.0
"""How long an operation may take: its wait, the second within which it is answered, and one for a busy machine."""
SAMPLE = 24
ASYNCIO = os.path.dirname(asyncio.__file__)
SHIELD = _finish.__code__
HELD = "held"
"""What the other client holds all the time."""

pytestmark = [
    pytest.mark.usefixtures("garbage_is_collected"),
    pytest.mark.filterwarnings(
        NEVER_RAN,
        # The grant of an interrupted task is garbage: the keeper gives it back.
        "ignore:.* was neither released nor lost:ResourceWarning",
        "ignore:Exception ignored:pytest.PytestUnraisableExceptionWarning",
        # A connection that was just being opened or closed.
        "ignore:unclosed:ResourceWarning",
    ),
]


def names(name: str) -> list[str]:
    """What an operation of this name takes."""
    return [f"{name}.{which}" for which in "abcde"]


async def takes(locks: aio.Client, name: str) -> None:
    """Several tasks, whose requests go out together. Each looks whether the replies are its own."""
    grants: list[aio.Grant] = []

    async def one(mine: str) -> None:
        grants.append(grant := await locks.lock(mine).acquire(wait=WAIT))
        seen = await locks.inspect(mine)
        assert grant.name == seen.name == mine
        assert all(holder.token == grant.token for holder in seen.holders), "another task's reply"
        await grant.release()

    tasks = [asyncio.create_task(one(mine)) for mine in names(name)]
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for grant in grants:
        # A careful program: a release that an exception has ended before it began is done again.
        with suppress(holdfast.HoldfastError):
            await grant.release()
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, Injected | holdfast.HoldfastError):
            raise outcome


async def enters(locks: aio.Client, name: str) -> None:
    """An exception may come before the body of an `async with`, or before its exit has done anything."""

    async def one(first: str, *others: str) -> None:
        async with locks.lock(first, wait=WAIT) as grant, locks.lock_all(*others, wait=WAIT) as grants:
            grant.check()
            grants.check()

    some = names(name)
    tasks = [asyncio.create_task(one(*mine)) for mine in (some[:3], some[3:])]
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, BaseException) and not isinstance(outcome, Injected | holdfast.HoldfastError):
            raise outcome


async def waits(locks: aio.Client, name: str) -> None:
    with suppress(holdfast.HoldfastError):
        grant = await locks.lock(HELD, note=name).acquire(wait=0.05)
        raise AssertionError(f"{grant.token} was granted to two")


Operation = Callable[[aio.Client, str], Coroutine[Any, Any, None]]
Connect = Callable[[float], Awaitable[aio.Client]]
"""Makes a client with this ttl."""


class LoopMoments(Moments):
    """Those of Holdfast's code, and of what it calls, without asyncio's own code.

    asyncio forgets the callbacks of a future that is being done when an exception comes: no program can help that.
    """

    def _event(self, frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code.co_filename.startswith(ASYNCIO):
            return
        found: FrameType | None = frame
        while found is not None and not found.f_code.co_filename.startswith(PRODUCT):
            found = found.f_back
        if found is frame or found is None or found.f_code is not go_on.__code__:
            super()._event(frame, event, argument)


async def struck(work: Coroutine[Any, Any, None], at: int | None) -> Moments:
    """Do this with the fault armed; TimeoutError if it takes longer than it may."""
    moments = LoopMoments(at, Injected)
    task = asyncio.create_task(work)
    gc.disable()
    sys.setprofile(moments._hook)
    try:
        done, _ = await asyncio.wait({task}, timeout=LIMIT)
    except Injected:
        # It came into the test's own task.
        sys.setprofile(None)
        done, _ = await asyncio.wait({task}, timeout=LIMIT)
    finally:
        sys.setprofile(None)
        gc.enable()
    if not done:
        raise TimeoutError(f"not answered in {LIMIT} s, interrupted at {moments.where}:\n{stacks()}")
    with suppress(Injected):
        task.result()
    return moments


async def left(rival: aio.Client, struck: list[str]) -> set[str]:
    """Those of these operations of which a claim is still there."""
    if not rival.guarantees.recorded:
        return {name for name in struck for mine in names(name) if not await can_be_taken(rival, mine)}
    return {
        each.note or info.name.rpartition(".")[0]
        for info in await rival.list()
        for each in (info.waiters if info.name == HELD else info.holders)
    }


async def can_be_taken(rival: aio.Client, name: str) -> bool:
    grant = await rival.lock(name).try_acquire()
    if grant is not None:
        await grant.release()
    return grant is not None


def stacks() -> str:
    """Where the tasks are."""
    found = []
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        found.append(task.get_name())
        awaited: Any = task.get_coro()
        while awaited is not None:
            frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
            if frame is None:
                break
            found.append(f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}")
            # What is shielded is no part of the chain.
            shielded = frame.f_locals.get("work") if frame.f_code is SHIELD else None
            awaited = shielded or getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return "\n".join(found)


async def strike_everywhere(operation: Operation, connect: Connect, lag: float) -> None:
    # What is raised in a callback of the loop is shown and no more.
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    locks, rival = await connect(TTL), await connect(RIVAL_TTL)
    held = await rival.lock(HELD).acquire()
    for warm in range(3):
        moments = (await struck(operation(locks, f"warm-{warm}"), None)).seen
    where: dict[str, str] = {}
    for at in range(0, moments, 1 if THOROUGH else max(1, moments // SAMPLE)):
        for attempt in ("", "-again"):
            name = f"{at}{attempt}"
            try:
                where[name] = (await struck(operation(locks, name), at)).where
                break
            except TimeoutError:
                # On a busy machine one may be late. One that is late again is no chance.
                if attempt:
                    raise
    # What the traceback of an exception refers to, such as a connection that was just being made.
    gc.collect()
    until = time.monotonic() + TTL + lag + 2.0
    while still := await left(rival, [*where]):
        assert time.monotonic() < until, f"left: {[(name, where.get(name)) for name in still]}"
        await asyncio.sleep(0.05)
    held.check()
    await held.release()
    for client in (locks, await connect(TTL)):
        async with client.lock("afterwards", wait=WAIT) as grant:
            assert grant.valid
        await client.close()
    await rival.close()


async def enters_by_a_stack(locks: aio.Client, name: str) -> None:
    """An `AsyncExitStack` enters. Python's own code keeps the exit, so only the entry is struck."""
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(locks.lock(names(name)[0], wait=WAIT))
        finally:
            sys.setprofile(None)


def test_an_exception_at_any_moment_of_an_entry_by_a_stack_leaves_nothing_held() -> None:
    async def strike() -> None:
        url = "memory://stacks"
        async with aio.connect(url) as locks, aio.connect(url) as rival, locks.lock("before") as before:
            moments = (await struck(enters_by_a_stack(locks, "warm"), None)).seen
            assert moments > SAMPLE
            where = {str(at): (await struck(enters_by_a_stack(locks, str(at)), at)).where for at in range(moments)}
            until = time.monotonic() + before.remaining
            while still := where.keys() & await left(rival, [*where]):
                assert time.monotonic() < until, f"left: {[(name, where[name]) for name in still]}"
                await asyncio.sleep(0.05)
            # It was given back, and did not end with the session.
            before.check()

    asyncio.run(strike())


@pytest.mark.parametrize("operation", [takes, enters, waits], ids=lambda operation: operation.__name__)
@pytest.mark.parametrize(
    "subject", [subject for subject in ENGINES if THOROUGH or subject.like is None], ids=lambda subject: subject.name
)
def test_an_exception_at_any_moment_of_a_loop_gives_no_task_anothers_reply(
    subject: Subject, operation: Operation, fresh_url: Callable[[Subject], str]
) -> None:
    url = fresh_url(subject)

    async def connect(ttl: float) -> aio.Client:
        return await aio.connect(url, ttl=ttl)

    asyncio.run(strike_everywhere(operation, connect, subject.lag))
