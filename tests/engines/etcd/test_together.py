"""Transactions of many tasks in one step: what becomes of each when the step fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import EngineUnavailable, aio
from holdfast.core.urls import parse
from holdfast.engines.etcd import steps
from holdfast.engines.etcd.address import parse_address
from holdfast.engines.etcd.batch import AT_ONCE, EtcdAsyncioPort
from holdfast.engines.etcd.wire import LeaseGone, Wire
from holdfast.runtime import clock
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.etcd import EtcdServer
from tests.conformance.stage import eventually

TASKS = 20


async def warm(locks: aio.Client) -> None:
    """Let there be connections for two steps: one that has to be made first may not have sent anything."""
    port: Any = locks._core.verbs.io.port  # type: ignore[attr-defined]
    while len(port._open) < AT_ONCE:
        for grant in await asyncio.gather(*(locks.lock(f"warm{number}").acquire() for number in range(TASKS))):
            await grant.release()


@pytest.mark.parametrize("lost", ["requests", "replies"])
@pytest.mark.parametrize("after", [0, 30, 300])
async def test_a_step_that_was_cut_is_held_once_by_each(
    server: EtcdServer, namespace: str, proxy: Proxy, lost: str, after: int
) -> None:
    url = f"etcd://127.0.0.1:{proxy.port}"
    async with aio.connect(url, namespace=namespace) as locks, aio.connect(server.url, namespace=namespace) as rival:
        await warm(locks)
        (proxy.requests if lost == "requests" else proxy.replies).set("cut", after=after)
        grants = await asyncio.gather(*(locks.lock(f"k{number}").acquire(wait=10.0) for number in range(TASKS)))
        proxy.heal()
        for number, grant in enumerate(grants):
            assert [holder.token for holder in (await rival.inspect(f"k{number}")).holders] == [grant.token]
        await asyncio.gather(*(grant.release() for grant in grants))

        assert await rival.list() == []


@pytest.mark.parametrize("lost", ["requests", "replies"])
async def test_a_step_that_is_not_answered_is_unknown_to_each_and_leaves_nothing(
    server: EtcdServer, namespace: str, proxy: Proxy, lost: str
) -> None:
    url = f"etcd://127.0.0.1:{proxy.port}"
    async with aio.connect(url, namespace=namespace) as locks, aio.connect(server.url, namespace=namespace) as rival:
        await warm(locks)
        (proxy.requests if lost == "requests" else proxy.replies).set("stall")
        outcomes = await asyncio.gather(
            *(locks.lock(f"k{number}").acquire(wait=0.2) for number in range(TASKS)), return_exceptions=True
        )
        told = {name: each.outcome for name, each in enumerate(outcomes) if isinstance(each, EngineUnavailable)}
        assert len(told) == TASKS
        assert list(told.values()).count("unknown") >= TASKS // AT_ONCE
        # Those that went with neither of the first steps are sent when one of them has failed, if they have time left.
        for number in [number for number, outcome in told.items() if outcome == "not done"]:
            assert (await rival.inspect(f"k{number}")).holders == ()
        proxy.heal()

        async def nothing_is_left() -> bool:
            return await rival.list() == []

        await eventually(nothing_is_left)


async def test_tasks_that_are_cancelled_take_nobody_with_them(server: EtcdServer, namespace: str) -> None:
    async with aio.connect(server.url, namespace=namespace) as locks:
        await warm(locks)
        tasks = [asyncio.ensure_future(locks.lock(f"k{number}").acquire()) for number in range(TASKS)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)

        assert [isinstance(each, asyncio.CancelledError) for each in outcomes] == [True, False] * (TASKS // 2)
        held = {info.name for info in await locks.list()}
        assert held == {f"k{number}" for number in range(1, TASKS, 2)}


async def test_what_has_no_time_left_when_its_turn_comes_is_not_sent(server: EtcdServer, namespace: str) -> None:
    wire = Wire(parse_address(parse(server.url)))
    port = EtcdAsyncioPort(wire, asyncio.get_running_loop())
    sent: list[str] = []
    wire.counted = sent.append

    def write(name: str, until: float) -> asyncio.Future[object]:
        request = steps.step([], [steps.put(f"{namespace}/{name}".encode(), b"")], together=name)
        return asyncio.ensure_future(port.call(request, until))

    try:
        outcomes = await asyncio.gather(
            write("first", clock.now() + 10.0), write("late", clock.now()), return_exceptions=True
        )
    finally:
        port.close()

    assert not isinstance(outcomes[0], BaseException)
    assert isinstance(outcomes[1], EngineUnavailable)
    assert (outcomes[1].outcome, len(sent)) == ("not done", 1)


async def test_a_lease_that_is_gone_fails_only_what_needs_it(server: EtcdServer, namespace: str) -> None:
    wire = Wire(parse_address(parse(server.url)))
    port = EtcdAsyncioPort(wire, asyncio.get_running_loop())
    sent: list[str] = []

    def write(name: str, lease: int = 0) -> asyncio.Future[object]:
        request = steps.step([], [steps.put(f"{namespace}/{name}".encode(), b"", lease)], together=name)
        return asyncio.ensure_future(port.call(request, clock.now() + 10.0))

    try:
        # The first goes alone, and what comes while it is under way goes together.
        first = write("first")
        await asyncio.sleep(0)
        wire.counted = sent.append
        outcomes = await asyncio.gather(write("a"), write("b", lease=12345), write("c"), return_exceptions=True)
        await first
    finally:
        port.close()

    assert [isinstance(each, LeaseGone) for each in outcomes] == [False, True, False]
    assert len(sent) == 4, "or they did not travel together"


async def test_a_step_whose_connection_was_given_up_by_somebody_else_is_unknown(
    server: EtcdServer, namespace: str
) -> None:
    async with aio.connect(server.url, namespace=namespace) as locks:
        first = asyncio.ensure_future(locks.lock("k").acquire())
        mine = {asyncio.current_task(), first}
        # Every turn is looked at: the one that connects lives for a few of them only.
        while not (others := asyncio.all_tasks() - mine):  # noqa: ASYNC110
            await asyncio.sleep(0)
        for task in others:
            task.cancel()
        with pytest.raises(EngineUnavailable) as unavailable:
            await first
        assert unavailable.value.outcome == "unknown"

        async with locks.lock("k"):
            assert len((await locks.inspect("k")).holders) == 1
