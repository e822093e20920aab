"""Many waiters of one client that leave one queue at once: together, and each of them for certain."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

import holdfast
from holdfast import aio
from holdfast.engines.zookeeper.answer import Answer
from holdfast.engines.zookeeper.connection import Message
from holdfast.engines.zookeeper.node_data import removal
from holdfast.engines.zookeeper.withdrawals import MOST_BYTES, MOST_TOGETHER, Withdrawals
from holdfast.verify.proxy import Proxy
from tests.conformance.stage import eventually as soon
from tests.servers.zookeeper import ZooKeeperServer

MANY = 100


async def waiters(locks: aio.Client, many: int = MANY) -> list[asyncio.Task[Any]]:
    """Tasks of one client that wait for a lock that another client holds."""
    before = len(locks._core.waiting)
    turns = [asyncio.create_task(locks.lock("k").acquire()) for _ in range(many)]
    await soon(lambda: len(locks._core.waiting) == before + many)
    return turns


async def end(turns: list[asyncio.Task[Any]]) -> None:
    """Cancel all of them at once, and wait for each."""
    for turn in turns:
        turn.cancel()
    ended = await asyncio.gather(*turns, return_exceptions=True)
    assert {type(one) for one in ended} == {asyncio.CancelledError}


def entries(locks: aio.Client) -> list[Any]:
    """What a client knows of its claims."""
    (member,) = locks._core.engine.ledger.members.values()  # type: ignore[attr-defined]
    return list(member.claims.values())


def counted(locks: aio.Client) -> list[None]:
    """One for each request from now on."""
    sent: list[None] = []
    engine: Any = locks._core.engine
    engine.count_requests(lambda: sent.append(None))
    return sent


async def test_many_that_leave_at_once_need_a_few_transactions(url: str) -> None:
    async with aio.connect(url) as locks, aio.connect(url) as other:
        held = await other.lock("k").acquire()
        turns = await waiters(locks)
        sent = counted(locks)
        await end(turns)

        assert len(sent) < MANY / 4
        assert not entries(locks)
        assert (await other.inspect("k")).waiters == ()
        held.check()


async def test_a_node_that_is_gone_already_keeps_no_other_one_in_the_queue(url: str, server: ZooKeeperServer) -> None:
    async with aio.connect(url) as locks, aio.connect(url) as other:
        held = await other.lock("k").acquire()
        turns = await waiters(locks)
        kazoo = KazooClient(server.address)
        kazoo.start()
        kazoo.delete(entries(locks)[MANY // 2].path)
        kazoo.stop()
        kazoo.close()
        await end(turns)

        assert not entries(locks)
        assert (await other.inspect("k")).waiters == ()
        held.check()


async def test_a_waiter_behind_those_that_leave_is_granted_in_its_turn(url: str) -> None:
    async with aio.connect(url) as locks, aio.connect(url) as other, aio.connect(url) as third:
        held = await third.lock("k").acquire()
        leaving = await waiters(locks, 20)
        (first,) = await waiters(other, 1)
        leaving += await waiters(locks, 20)
        (second,) = await waiters(locks, 1)
        await end(leaving)
        assert not first.done()
        assert not second.done()
        await held.release()
        one = await first
        assert not second.done()
        await one.release()
        two = await second

        assert held.token < one.token < two.token
        await two.release()


async def test_those_that_leave_while_the_lock_is_released_stop_nobody_behind_them(url: str) -> None:
    async with aio.connect(url) as locks, aio.connect(url) as other:
        for _ in range(5):
            held = await other.lock("k").acquire()
            leaving = await waiters(locks, 20)
            (behind,) = await waiters(other, 1)
            for turn in leaving:
                turn.cancel()
            await held.release()
            ended = await asyncio.gather(*leaving, return_exceptions=True)
            for grant in ended:
                if isinstance(grant, holdfast.aio.Grant):
                    await grant.release()
            after = await asyncio.wait_for(behind, 20.0)

            assert after.token > held.token
            await after.release()


async def test_each_of_several_grants_that_leave_together_is_told_to_a_watcher(
    url: str, far_url: str, proxy: Proxy
) -> None:
    """They were granted, and their callers were cancelled before they heard of that."""
    async with aio.connect(far_url) as locks, aio.connect(url) as other:
        for client in (locks, other):
            async with client.lock("k"):
                pass
        async with other.watch("k") as events:
            proxy.replies.set("stall")
            turns = [asyncio.create_task(locks.rwlock("k").read().acquire()) for _ in range(20)]
            granted = [await anext(events) for _ in range(20)]
            for turn in turns:
                turn.cancel()
            await asyncio.sleep(0)
            proxy.heal()
            await asyncio.gather(*turns, return_exceptions=True)
            released = [await anext(events) for _ in range(20)]

        assert {event.type for event in granted} == {"granted"}
        assert {event.type for event in released} == {"released"}
        assert Counter(event.claim for event in granted) == Counter(event.claim for event in released)


async def test_callers_that_are_cancelled_or_late_leave_the_others_alone(url: str, far_url: str, proxy: Proxy) -> None:
    async with aio.connect(far_url) as locks, aio.connect(url) as other:
        held = await other.lock("k").acquire()
        turns = await waiters(locks, 20)
        claims = [entry.claim for entry in entries(locks)]
        core = locks._core
        proxy.requests.set("stall")
        sent = counted(locks)
        late = core.io.now() + 0.3
        leaving = [
            asyncio.create_task(core.verbs.leave(claim, False, late if number % 5 == 4 else core.until()))
            for number, claim in enumerate(claims)
        ]
        await soon(lambda: bool(sent))
        # The first one is under way, the others wait.
        leaving[0].cancel()
        leaving[10].cancel()
        await soon(lambda: leaving[-1].done())
        again = asyncio.create_task(core.verbs.leave(claims[-1], False, core.until()))
        proxy.heal()
        ended = await asyncio.gather(*leaving, again, return_exceptions=True)

        assert len(sent) < 10
        for number, outcome in enumerate(ended):
            if number in (0, 10):
                assert isinstance(outcome, asyncio.CancelledError)
            elif number % 5 == 4 and number < 20:
                assert isinstance(outcome, holdfast.EngineUnavailable)
                assert outcome.outcome == "unknown"
            else:
                assert not isinstance(outcome, BaseException)
        assert (await other.inspect("k")).waiters == ()
        held.check()
        before = len(sent)
        for claim in claims:
            await core.verbs.leave(claim, False, core.until())

        assert len(sent) < before + 4  # those that were late or cancelled are known to be gone
        assert not entries(locks)
        await end(turns)


async def test_those_that_leave_as_the_connection_breaks_are_gone_in_the_end(
    url: str, far_url: str, proxy: Proxy
) -> None:
    async with aio.connect(far_url) as locks, aio.connect(url) as other:
        held = await other.lock("k").acquire()
        turns = await waiters(locks)
        proxy.requests.set("stall")
        for turn in turns:
            turn.cancel()
        await asyncio.sleep(0.05)
        proxy.cut()
        proxy.heal()
        await asyncio.gather(*turns, return_exceptions=True)

        async def queue_is_empty() -> bool:
            return (await other.inspect("k")).waiters == ()

        await soon(queue_is_empty)
        held.check()


class FakeKazoo:
    """Takes what is sent, and never answers by itself."""

    def __init__(self) -> None:
        self.sent: list[tuple[Message, Answer]] = []

    def call_in_turn(self, function: Callable[[Answer], object], answer: Answer) -> None:
        function(answer)

    def send(self, message: Message, answer: Answer) -> None:
        self.sent.append((message, answer))


def leave(withdrawals: Withdrawals, parent: str, numbers: range) -> list[Answer]:
    """Have nodes with these numbers removed."""
    claims = [f"0123456789ab-{number}" for number in numbers]
    return [withdrawals.send(f"{parent}/x.{claim}.0000000001", removal(claim, "released")) for claim in claims]


@pytest.fixture
def kazoo() -> FakeKazoo:
    return FakeKazoo()


@pytest.fixture
def link(kazoo: FakeKazoo) -> Any:
    return SimpleNamespace(kazoo=kazoo)


@pytest.mark.parametrize("name_length", [5, 2000])
def test_a_transaction_of_many_is_bounded(kazoo: FakeKazoo, link: Any, name_length: int) -> None:
    parent = "/" + "n" * name_length
    answers = leave(Withdrawals(link, parent), parent, range(1_000))
    sizes = []
    while kazoo.sent:
        message, answer = kazoo.sent.pop(0)
        sizes.append(len(message.request.operations) - 1)
        assert len(message.body) < MOST_BYTES + 2 * name_length
        answer.set([True] * (sizes[-1] + 1))

    assert sizes[0] == 1
    assert sum(sizes) == 1_000
    assert max(sizes) <= MOST_TOGETHER
    assert name_length > 5 or len(sizes) == 5
    assert all(answer.ready() for answer in answers)


def test_a_claim_whose_caller_asks_again_is_removed_once(kazoo: FakeKazoo, link: Any) -> None:
    withdrawals = Withdrawals(link, "/queue")
    answers = leave(withdrawals, "/queue", range(3)) + leave(withdrawals, "/queue", range(3))
    removed = []
    while kazoo.sent:
        message, answer = kazoo.sent.pop(0)
        removed += [each.path for each in message.request.operations[1:]]
        answer.set([True])

    assert len(removed) == len(set(removed)) == 3
    assert all(answer.ready() for answer in answers)


def test_all_are_told_when_the_connection_is_lost(kazoo: FakeKazoo, link: Any) -> None:
    withdrawals = Withdrawals(link, "/queue")
    answers = leave(withdrawals, "/queue", range(10))
    ((_, answer),) = kazoo.sent
    answer.set_exception(ConnectionLoss())

    assert all(isinstance(answer.exception, ConnectionLoss) for answer in answers)
    assert len(kazoo.sent) == 1
    leave(withdrawals, "/queue", range(1))
    assert len(kazoo.sent) == 2
