"""Many waiters of one client in one queue: what they cost together, and what passes them."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import ExitStack
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.serialization import Exists
from kazoo.protocol.states import KeeperState

import holdfast
from holdfast import InvalidRequest, aio
from holdfast.core import urls
from holdfast.engines.zookeeper import claims
from holdfast.engines.zookeeper.connection import Message
from holdfast.engines.zookeeper.engine import ZooKeeperEngine
from holdfast.engines.zookeeper.link import Link
from holdfast.engines.zookeeper.queue_view import QueueView
from tests.conformance.stage import eventually as soon
from tests.engines.random_queue import SEEDS, Member, Queue
from tests.engines.zookeeper.patience import eventually
from tests.servers.zookeeper import ZooKeeperServer

MANY = 200


def view_of(client: Any, name: str) -> QueueView:
    """What a client knows of a queue."""
    core = client._core
    (member,) = core.engine.ledger.members.values()
    view: QueueView = member.views[core.engine.layout.line("holdfast.lock", name)]
    return view


async def test_a_queue_of_many_is_listed_a_few_times_and_not_for_each_of_them(url: str) -> None:
    async with aio.connect(url) as locks, aio.connect(url) as other:
        held = await other.lock("k").acquire()
        order: list[int] = []

        async def take_a_turn(number: int) -> None:
            async with locks.lock("k"):
                order.append(number)

        turns = [asyncio.create_task(take_a_turn(number)) for number in range(MANY)]
        await soon(lambda: len(locks._core.waiting) == MANY)
        view = view_of(locks, "k")
        joined = view.lists
        await held.release()
        await asyncio.gather(*turns)

        assert order == list(range(MANY))
        assert joined <= 3
        assert view.lists <= joined + 3


async def test_claims_of_two_clients_between_each_other_are_granted_in_order(url: str) -> None:
    async with aio.connect(url) as one, aio.connect(url) as two:
        held = await one.lock("k").acquire()
        order: list[int] = []

        async def take_a_turn(client: aio.Client, number: int) -> None:
            async with client.lock("k"):
                order.append(number)

        turns = []
        for number in range(30):
            client = (one, two)[number % 2]
            before = len(client._core.waiting)
            turns.append(asyncio.create_task(take_a_turn(client, number)))
            await soon(lambda client=client, before=before: len(client._core.waiting) > before)  # type: ignore[misc]
        await held.release()
        await asyncio.gather(*turns)

    assert order == list(range(30))


async def test_those_who_look_without_being_woken_share_a_list(url: str) -> None:
    async with aio.connect(url) as locks, aio.connect(url) as other:
        held = await other.lock("k").acquire()
        turns = [asyncio.create_task(locks.lock("k").acquire()) for _ in range(MANY)]
        await soon(lambda: len(locks._core.waiting) == MANY)
        view, core = view_of(locks, "k"), locks._core
        view.listed_at = float("-inf")
        before = view.lists
        (member,) = core.engine.ledger.members.values()  # type: ignore[attr-defined]
        waiting = [entry.claim for entry in member.claims.values()]
        await asyncio.gather(*(core.verbs.enter(claim, core.until()) for claim in waiting))
        listed = view.lists - before
        again = view.lists
        await asyncio.gather(*(core.verbs.enter(claim, core.until()) for claim in waiting))

        assert 1 <= listed <= 2
        assert view.lists == again
        for turn in turns:
            turn.cancel()
        await asyncio.gather(*turns, return_exceptions=True)
        await held.release()


async def test_all_that_time_out_together_leave_nothing_in_the_queue(url: str) -> None:
    async with aio.connect(url) as locks, aio.connect(url) as other:
        held = await other.lock("k").acquire()
        missed = await asyncio.gather(*(locks.lock("k").acquire(wait=0.5) for _ in range(MANY)), return_exceptions=True)

        assert {type(one) for one in missed} == {holdfast.NotAcquired}
        assert (await other.inspect("k")).waiters == ()
        (member,) = locks._core.engine.ledger.members.values()  # type: ignore[attr-defined]
        assert not member.views
        held.check()
        await held.release()


async def test_a_reader_that_waits_behind_a_writer_of_its_client_holds_with_the_others(url: str) -> None:
    async with aio.connect(url) as locks:
        writer = await locks.rwlock("k").write().acquire()
        readers = [asyncio.create_task(locks.rwlock("k").read().acquire()) for _ in range(20)]
        await soon(lambda: len(locks._core.waiting) == 20)
        last = asyncio.create_task(locks.rwlock("k").write().acquire())
        await soon(lambda: len(locks._core.waiting) == 21)
        await writer.release()
        held = await asyncio.gather(*readers)

        assert not last.done()
        assert len({grant.token for grant in held}) == 20
        for grant in held:
            await grant.release()
        after = await last
        assert after.token > max(grant.token for grant in held)
        await after.release()


def test_a_waiter_does_not_take_an_adoption_for_a_release(url: str) -> None:
    with holdfast.connect(url) as sender, holdfast.connect(url) as receiver, holdfast.connect(url) as waiter:
        held = sender.lock("k").acquire()
        granted: list[holdfast.Grant] = []
        thread = threading.Thread(target=lambda: granted.append(waiter.lock("k").acquire()))
        thread.start()
        eventually(lambda: waiter._core.waiting, "waiting")
        adopted = receiver.adopt(held.hand_over())
        view = view_of(waiter, "k")
        eventually(lambda: view.first(1)[0].claim != held._hold.claim.id, "the adopter being known")

        assert not granted
        adopted.release()
        thread.join(20.0)
        assert granted[0].token > adopted.token
        granted[0].release()


def test_a_claim_with_the_wrong_limit_that_withdraws_harms_no_other(url: str) -> None:
    with holdfast.connect(url) as holder, holdfast.connect(url) as wrong, holdfast.connect(url) as right:
        held = holder.semaphore("s", limit=4).acquire()
        stop, refused = threading.Event(), 0

        def be_wrong() -> None:
            nonlocal refused
            while not stop.is_set():
                with pytest.raises(InvalidRequest):
                    wrong.semaphore("s", limit=2).acquire(wait=5.0)
                refused += 1

        thread = threading.Thread(target=be_wrong)
        thread.start()
        end = time.monotonic() + 1.0
        turns = 0
        while time.monotonic() < end or turns < 10:
            right.semaphore("s", limit=4).acquire(wait=5.0).release()
            turns += 1
        stop.set()
        thread.join(20.0)

        assert refused > 0
        held.release()


def test_a_permit_that_the_queue_promises_and_another_has_is_waited_for_in_peace(
    url: str, server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A permit's node may stay for a while after its claim."""
    with holdfast.connect(url) as locks, holdfast.connect(url) as other:
        other.semaphore("s", limit=1).acquire().release()
        core: Any = other._core
        slot = f"{core.engine.layout.slots('holdfast.semaphore', 's')}/0"
        kazoo = KazooClient(server.address)
        kazoo.start()
        kazoo.create(slot, b"left behind")
        looks = 0
        take_slot = claims.ClaimVerbs.take_slot

        async def counted(*args: Any) -> Any:
            nonlocal looks
            looks += 1
            return await take_slot(*args)

        monkeypatch.setattr(claims.ClaimVerbs, "take_slot", counted)
        granted: list[holdfast.Grant] = []
        thread = threading.Thread(target=lambda: granted.append(locks.semaphore("s", limit=1).acquire()))
        thread.start()
        eventually(lambda: locks._core.waiting, "waiting")
        with pytest.raises(holdfast.NotAcquired):
            other.semaphore("s", limit=1).acquire(wait=0.5)
        assert looks < 10
        kazoo.delete(slot)
        thread.join(20.0)

        granted[0].release()
        kazoo.stop()
        kazoo.close()


@pytest.mark.parametrize("kind", ["lock", "semaphore"])
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_the_order_one_holds_and_every_waiter_is_woken(url: str, seed: int, kind: str) -> None:
    with ExitStack() as clients:

        def new_member() -> Member:
            return Member(clients.enter_context(holdfast.connect(url, ttl=20.0)))

        def end_session(locks: Any) -> None:
            (member,) = locks._core.engine.ledger.members.values()
            member.link.say_farewell()
            eventually(lambda: member.link.over is not None, "over")

        queue = Queue(kind, seed, new_member, end_session)
        queue.run(300)

        for member in queue.members:
            assert not any(each.views for each in member.locks._core.engine.ledger.members.values())


def test_a_heartbeat_is_sent_before_all_that_waits() -> None:
    engine = ZooKeeperEngine(urls.parse("zookeeper://127.0.0.1:1"), "holdfast")
    link = Link(engine.place, 10.0, beats=True)
    link.kazoo._state = KeeperState.CONNECTING
    for number in range(3):
        link.kazoo._queue.append((Message(Exists(f"/{number}", None)), None))
    transaction = link.kazoo.transaction()
    transaction.check("/beat", 0)
    link.kazoo.commit_first(transaction)

    message, _ = link.kazoo._queue[0]
    assert message.first
