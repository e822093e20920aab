"""The server sends a client no notice of what the client did itself: not even a lost answer loses that news.

Neither a poll nor a heartbeat helps here: both come later than these tests wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from types import coroutine
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast.locks import acquire
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.postgres import PostgresServer
from tests.engines.postgres.patience import eventually, soon

Connect = Callable[..., holdfast.Client]


@pytest.fixture(autouse=True)
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acquire, "FIRST_POLL", 3600.0)


@coroutine
def cancelled_at(moment: int, work: Coroutine[Any, Any, Any]) -> Generator[Any, None, bool]:
    """Await work, and cancel this task when the work waits for the given time; whether it got that far."""
    waits = 0
    step: Callable[[], Any] = lambda: work.send(None)  # noqa: E731 - it changes below
    while True:
        try:
            pending = step()
        except StopIteration:
            return waits >= moment
        waits += 1
        if waits == moment:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        try:
            yield pending
        except BaseException as error:  # noqa: BLE001 - it is the work's
            step = lambda error=error: work.throw(error)  # type: ignore[misc]  # noqa: E731
        else:
            step = lambda: work.send(None)  # noqa: E731


async def cancel(moment: int, work: Coroutine[Any, Any, Any]) -> bool:
    """Cancel work at one of its waits; whether it had as many."""

    async def body() -> bool:
        return await cancelled_at(moment, work)

    task = asyncio.create_task(body())
    await asyncio.wait({task})
    return task.cancelled() or task.exception() is not None or task.result()


async def test_a_cancelled_release_wakes_the_next_waiter_of_the_same_client(url: str) -> None:
    async with aio.connect(url, ttl=60) as locks, aio.connect(url, ttl=60) as witness:
        for crowd in (0, 2):
            moment, more = 0, True
            while more:
                moment += 1
                name = f"k{crowd}-{moment}"
                held = await locks.lock(name).acquire()
                waiters = [asyncio.create_task(take(locks, name)) for _ in range(1 + crowd)]
                await soon(lambda name=name, crowd=crowd: in_line(witness, name, 1 + crowd))  # type: ignore[misc]

                more = await cancel(moment, held.release())

                await asyncio.wait_for(asyncio.gather(*waiters), 15)
                with suppress(holdfast.LockLost, holdfast.NotHeld):
                    await held.release()
            assert moment >= 2


async def take(locks: aio.Client, name: str) -> None:
    async with locks.lock(name):
        await asyncio.sleep(0)


async def in_line(locks: aio.Client, name: str, waiters: int) -> bool:
    return len((await locks.inspect(name)).waiters) == waiters


async def test_a_cancelled_adoption_tells_a_sender_in_the_same_client_what_became_of_its_grant(url: str) -> None:
    async with aio.connect(url, ttl=60) as locks, aio.connect(url, ttl=60) as witness:
        moment, more = 0, True
        while more:
            moment += 1
            name = f"k{moment}"
            sent = await locks.lock(name).acquire()
            text = await sent.hand_over()

            adopted: list[aio.Grant] = []

            async def adopt(text: str = text, adopted: list[aio.Grant] = adopted) -> None:
                adopted.append(await locks.adopt(text))

            more = await cancel(moment, adopt())

            async def agreed(name: str = name, sent: aio.Grant = sent) -> bool:
                holders = (await witness.inspect(name)).holders
                return sent.valid == (bool(holders) and holders[0].token == sent.token)

            await soon(agreed, within=15)
            for grant in (*adopted, sent):
                with suppress(holdfast.LockLost, holdfast.NotHeld):
                    await grant.release()
        assert moment > 3


@pytest.mark.parametrize("after", [0, 20, 40, 60, 90, 150])
def test_a_release_whose_reply_was_lost_wakes_the_next_waiter_of_the_same_client(
    server: PostgresServer, schema: str, after: int
) -> None:
    with Proxy("127.0.0.1", server.port) as proxy, ThreadPoolExecutor(1) as other, ExitStack() as stack:
        url = f"postgresql://holdfast@127.0.0.1:{proxy.port}/postgres?schema={schema}"
        locks = stack.enter_context(holdfast.connect(url, ttl=60))
        held = locks.lock("k").acquire()
        waiter = other.submit(locks.lock("k").acquire)
        eventually(lambda: locks.inspect("k").waiters)
        proxy.replies.set("cut", after=after)
        outcome = "unknown"
        try:
            held.release()
        except holdfast.EngineUnavailable as error:
            outcome = error.outcome
        assert outcome == "unknown"
        proxy.heal()
        granted = waiter.result(15)
        other.submit(granted.release).result()
        with suppress(holdfast.LockLost, holdfast.NotHeld):
            held.release()


def test_an_interrupt_after_the_answer_was_read_loses_no_news(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.engines.postgres.table import PostgresTable

    locks = connect(ttl=60)
    held = locks.lock("k").acquire()
    main = threading.current_thread()
    with ThreadPoolExecutor(1) as other:
        waiter = other.submit(locks.lock("k").acquire)
        eventually(lambda: locks.inspect("k").waiters)
        give_back = PostgresTable.give_back

        async def interrupted(table: PostgresTable, *arguments: Any) -> None:
            await give_back(table, *arguments)
            if threading.current_thread() is main:
                monkeypatch.undo()
                raise KeyboardInterrupt

        monkeypatch.setattr(PostgresTable, "give_back", interrupted)
        with pytest.raises(KeyboardInterrupt):
            held.release()

        granted = waiter.result(15)
        other.submit(granted.release).result()
        with suppress(holdfast.LockLost, holdfast.NotHeld):
            held.release()
