"""The client: what it promises, what it requires, how it ends, and the decorator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast import Guarantees, HoldfastError, InvalidRequest, NotAcquired, WeakerGuarantee
from tests.conformance.abilities import needs
from tests.conformance.apis import Api, Front
from tests.conformance.refusals import refused
from tests.conformance.stage import Stage

FLAGS: dict[str, Callable[[Guarantees], bool]] = {
    "consensus": lambda given: given.consensus,
    "durable": lambda given: given.durable,
    "leased": lambda given: given.leased,
    "fair": lambda given: given.fair,
    "notified": lambda given: given.notified,
    "deadlock_detection": lambda given: given.deadlock_detection,
    "cells": lambda given: given.cells,
    "recorded": lambda given: given.recorded,
    "hand_over": lambda given: given.hand_over,
    "strict_fencing": lambda given: given.fencing == "strict",
}


@pytest.mark.any_connection
async def test_guarantees_are_complete(locks: Front) -> None:
    given = locks.guarantees

    assert isinstance(given, Guarantees)
    assert all(isinstance(getattr(given, flag), bool) for flag in FLAGS if flag != "strict_fencing")
    assert given.fencing in ("strict", "clock")
    assert given.clock in ("monotonic", "wall")
    assert "exclusive" in given.modes
    assert given.modes <= {"exclusive", "shared", "semaphore", "subtree"}
    assert given.events <= {"granted", "queued", "released", "expired", "broken", "deadlock"}
    assert given.lost_node.endswith(".")
    assert given.summary.endswith(".")
    with pytest.raises(AttributeError):
        given.fair = False  # type: ignore[misc]


@pytest.mark.any_connection
async def test_what_is_required_is_given_or_refused(stage: Stage, locks: Front) -> None:
    given = {flag for flag, read in FLAGS.items() if read(locks.guarantees)}

    client = await stage.client(require=given)
    assert await client.lock("k").try_acquire() is not None
    for flag in FLAGS.keys() - given:
        with pytest.raises(WeakerGuarantee) as weaker:
            await stage.client(require=given | {flag})
        assert weaker.value.missing == (flag,)
        assert flag in str(weaker.value)


@pytest.mark.any_connection
async def test_closing_releases_everything(stage: Stage, locks: Front, rival: Front) -> None:
    held = [await stage.another(locks).lock(f"k{number}").acquire() for number in range(3)]
    await locks.close()

    assert await stage.in_use(rival, "k0", "k1", "k2") == []
    assert not any(grant.valid for grant in held)
    assert await rival.lock("k0").try_acquire() is not None


async def test_closing_again_does_nothing(locks: Front, rival: Front) -> None:
    held = await rival.lock("k").acquire()
    await locks.close()
    await locks.close()

    assert held.valid


async def test_a_closed_client_takes_no_lock(locks: Front) -> None:
    await locks.close()

    with pytest.raises(HoldfastError, match="closed"):
        await locks.lock("k").acquire()
    with pytest.raises(HoldfastError, match="closed"):
        await locks.lock("k").try_acquire()
    with pytest.raises(HoldfastError, match="closed"):
        await locks.inspect("k")


@needs("cells")
async def test_a_closed_client_has_no_cells(locks: Front) -> None:
    cell = locks.cell("c")
    await locks.close()

    with pytest.raises(HoldfastError, match="closed"):
        await cell.set(1)
    with pytest.raises(HoldfastError, match="closed"):
        await cell.get()


async def test_a_client_is_closed_at_the_end_of_its_with(stage: Stage, rival: Front) -> None:
    client = await stage.client()
    async with client:
        held = await client.lock("k").acquire()
    assert not held.valid
    assert await rival.lock("k").try_acquire() is not None


async def test_a_client_that_never_asked_for_anything_can_be_closed(stage: Stage) -> None:
    await (await stage.client()).close()


async def test_a_function_runs_under_a_lock_named_by_its_arguments(stage: Stage, locks: Front, rival: Front) -> None:
    names = ["invoice:42/paid", "invoice:7/open"]

    async def task(invoice_id: int, *, kind: str = "paid") -> list[str]:
        return [name for name in names if (await rival.target.inspect(name)).holders]

    def plain(invoice_id: int, *, kind: str = "paid") -> list[str]:
        return [name for name in names if rival.target.inspect(name).holders]

    pay = locks.target.locked("invoice:{invoice_id}/{kind}")(stage.api.function(task, plain))

    assert await locks.actor.do(pay, 42) == ["invoice:42/paid"]
    assert await locks.actor.do(pay, invoice_id=7, kind="open") == ["invoice:7/open"]
    assert await stage.in_use(rival, *names) == []
    assert pay.__name__ in ("task", "plain")


async def test_calls_with_the_same_argument_take_turns(stage: Stage, locks: Front) -> None:
    inside: dict[int, int] = {}

    def enter(number: int) -> None:
        inside[number] = inside.get(number, 0) + 1
        assert inside[number] == 1

    async def task(number: int) -> None:
        enter(number)
        await asyncio.sleep(0.001)
        inside[number] -= 1

    def plain(number: int) -> None:
        enter(number)
        inside[number] -= 1

    work = locks.target.locked("n:{number}")(stage.api.function(task, plain))
    await asyncio.gather(*(stage.actor().do(work, number % 2) for number in range(8)))
    assert inside == {0: 0, 1: 0}


async def test_the_decorator_takes_a_locks_options(stage: Stage, locks: Front, rival: Front) -> None:
    async def task() -> None:
        raise AssertionError("it ran without the lock")

    def plain() -> None:
        raise AssertionError("it ran without the lock")

    work = locks.target.locked("k", wait=0.05)(stage.api.function(task, plain))
    held = await rival.lock("k").acquire()

    with pytest.raises(NotAcquired):
        await locks.actor.do(work)
    assert held.valid


async def test_a_name_that_the_arguments_cannot_make_is_refused_at_decoration(stage: Stage, locks: Front) -> None:
    async def task(invoice_id: int) -> None: ...

    def plain(invoice_id: int) -> None: ...

    function = stage.api.function(task, plain)

    def decorate(template: str) -> None:
        locks.target.locked(template)(function)

    templates = ["invoice:{missing}", "invoice:{}", "invoice:{0}", "invoice:{"]
    assert [each for each in templates if not refused(partial(decorate, each))] == []


async def test_a_function_of_the_other_api_is_refused_at_decoration(api: Api, locks: Front) -> None:
    async def task() -> None: ...

    def plain() -> None: ...

    other: Any = plain if api.name == "aio" else task
    with pytest.raises(InvalidRequest):
        locks.target.locked("k")(other)
