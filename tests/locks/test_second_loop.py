"""A client of asyncio serves the event loop in which it was connected, and refuses every other one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast.engines.memory import table


async def enter(context: Any) -> None:
    async with context:
        raise AssertionError("the body ran")


Use = Callable[[aio.Client, dict[str, Any]], Awaitable[Any]]

USES: dict[str, Use] = {
    "acquire": lambda locks, made: locks.lock("k").acquire(wait=5.0),
    "acquire again": lambda locks, made: locks.lock("held", reentrant=True).acquire(),
    "try_acquire": lambda locks, made: locks.lock("k").try_acquire(),
    "with": lambda locks, made: enter(locks.lock("k")),
    "semaphore": lambda locks, made: locks.semaphore("k", 2).acquire(),
    "lock_all": lambda locks, made: locks.lock_all("k", "l").acquire(),
    "lock_all, tried": lambda locks, made: locks.lock_all("k", "l").try_acquire(),
    "release": lambda locks, made: made["grant"].release(),
    "release all": lambda locks, made: made["grants"].release(),
    "leave the with": lambda locks, made: made["lock"].__aexit__(None, None, None),
    "renew": lambda locks, made: made["grant"].renew(),
    "hand_over": lambda locks, made: made["grant"].hand_over(),
    "adopt": lambda locks, made: locks.adopt(made["text"]),
    "campaign": lambda locks, made: locks.election("e").campaign(),
    "resign": lambda locks, made: made["election"].resign(),
    "leader": lambda locks, made: locks.election("e").leader(),
    "barrier": lambda locks, made: locks.barrier("b", 1).wait(),
    "count_down": lambda locks, made: locks.latch("n", 2).count_down(),
    "latch": lambda locks, made: locks.latch("n", 2).wait(),
    "cell": lambda locks, made: locks.cell("c").set("new"),
    "once": lambda locks, made: locks.once("o").run(lambda grant: "done"),
    "join": lambda locks, made: locks.partition("p", "other").join(),
    "leave": lambda locks, made: made["partition"].leave(),
    "append": lambda locks, made: locks.log("l").append(["event"]),
    "inspect": lambda locks, made: locks.inspect("held"),
    "list": lambda locks, made: locks.list(),
    "watch": lambda locks, made: anext(locks.watch()),
    "break_lock": lambda locks, made: locks.break_lock("held"),
    "close": lambda locks, made: locks.close(),
}


async def make() -> tuple[aio.Client, dict[str, Any]]:
    """A client that uses everything which can be used further."""
    locks = await aio.connect("memory://loops")
    grant = await locks.lock("held", reentrant=True).acquire()
    handed = await locks.lock("handed").acquire()
    lock, election, partition = locks.lock("inside"), locks.election("led"), locks.partition("p", "me")
    await lock.__aenter__()
    await partition.join()
    made = {
        "grant": grant, "grants": await locks.lock_all("x", "y").acquire(), "text": await handed.hand_over(),
        "lock": lock, "election": election, "led": await election.campaign(), "partition": partition, "handed": handed,
    }  # fmt: skip
    return locks, made


def kept() -> tuple[object, ...]:
    """All that the engine has."""
    rows = table("loops").rows
    return set(rows.rows), dict(rows.cells), len(rows.watches)


@pytest.fixture(scope="module")
def first() -> Iterator[tuple[asyncio.Runner, aio.Client, dict[str, Any]]]:
    """A loop that is not closed, and a client of it."""
    with asyncio.Runner() as runner:
        locks, made = runner.run(make())
        yield runner, locks, made
        runner.run(locks.close())


@pytest.mark.parametrize("use", USES)
def test_another_loop_is_refused_and_nothing_changes(
    first: tuple[asyncio.Runner, aio.Client, dict[str, Any]], use: str
) -> None:
    _, locks, made = first
    before = kept()

    with asyncio.Runner() as other, pytest.raises(holdfast.HoldfastError, match="connect again in this loop"):
        other.run(_awaited(USES[use](locks, made)))
    assert kept() == before
    assert all(made[grant].valid for grant in ("grant", "grants", "led", "handed"))


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


def test_a_reentrant_lock_is_not_given_to_another_loop_whose_thread_asks_while_the_owner_runs() -> None:
    held, asked = threading.Event(), threading.Event()
    made: dict[str, Any] = {}

    async def hold() -> None:
        async with aio.connect("memory://two-loops") as locks:
            async with locks.lock("r", reentrant=True):
                made["locks"] = locks
                held.set()
                # The task goes on running: it is the current one of its loop.
                asked.wait(10.0)

    async def ask() -> object:
        return await made["locks"].lock("r", reentrant=True).try_acquire()

    holder = threading.Thread(target=asyncio.run, args=(hold(),))
    holder.start()
    held.wait(10.0)
    try:
        with pytest.raises(holdfast.HoldfastError, match="is another one"):
            asyncio.run(ask())
    finally:
        asked.set()
        holder.join()


def test_the_refusal_says_that_the_loop_was_closed() -> None:
    async def connect() -> aio.Client:
        return await aio.connect("memory://closed-loop")

    async def use(locks: aio.Client) -> None:
        await locks.lock("k").acquire()

    locks = asyncio.run(connect())

    with pytest.raises(holdfast.HoldfastError, match="was closed"):
        asyncio.run(use(locks))
    assert table("closed-loop").rows.rows == {}
