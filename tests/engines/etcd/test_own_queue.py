"""Many claims of one client in one queue: only the first of them asks etcd, and nobody overtakes or is forgotten."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

from holdfast import NotAcquired, aio
from holdfast.core.table.commands import Done
from holdfast.engines.etcd import line
from holdfast.engines.etcd.batch import AT_ONCE
from holdfast.engines.etcd.keys import lease_of
from holdfast.engines.etcd.line import FEW
from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.outcome import VerbCall
from holdfast.engines.etcd.wire import LEASE_REVOKE, RANGE, TXN, Request
from holdfast.locks import acquire
from holdfast.model import Claim, Granted, Mode, Place
from holdfast.runtime.blocking import run
from holdfast.verify.servers.etcd import EtcdServer
from tests.conformance.stage import eventually
from tests.engines.etcd.conftest import Connect
from tests.engines.random_queue import SEEDS, Member, Queue
from tests.servers.process import wait_until


@pytest.mark.parametrize("kind", ["lock", "semaphore"])
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_the_order_one_holds_and_every_waiter_is_woken(
    connect: Connect, seed: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "FEW", 1 if seed % 2 else FEW)

    def end_session(locks: Any) -> None:
        core = locks._core
        asked = message("LeaseRevokeRequest")(ID=lease_of(core.session.id))
        run(core.verbs.call(Request(LEASE_REVOKE, asked), VerbCall(core.until())))

    queue = Queue(kind, seed, lambda: Member(connect(ttl=60.0)), end_session)
    queue.run(300)

    for member in queue.members:
        assert not member.locks._core.engine.shared.ledger._queues


def test_a_writer_behind_a_reader_that_gave_up_waits_for_the_other_readers(connect: Connect) -> None:
    """The reader knew of the writer before it only, and not of other readers."""
    ours, others = Member(connect(ttl=60.0)), Member(connect(ttl=60.0))

    def enter(member: Member, mode: Mode = "exclusive") -> tuple[Claim, Granted | Place]:
        claim = member.claim("lock", mode=mode)
        return claim, run(member.verbs.enter(claim, member.until))

    def look(member: Member, claim: Claim) -> Granted | Place:
        reply: Granted | Place = run(member.verbs.look(claim, member.until))
        return reply

    def release(member: Member, claim: Claim) -> None:
        assert run(member.verbs.release(claim, member.until)) == Done()

    held = enter(ours)[0]
    writers = [enter(ours)[0] for _ in range(FEW)]
    other_writer = enter(others)[0]
    other_reader = enter(others, "shared")[0]
    reader = enter(ours, "shared")[0]
    last = enter(ours)[0]
    for former, following in zip([held, *writers], [*writers, None], strict=True):
        release(ours, former)
        assert following is None or isinstance(look(ours, following), Granted)
    assert isinstance(look(others, other_writer), Granted)
    ours.woken.clear()
    release(others, other_writer)
    assert isinstance(look(others, other_reader), Granted)
    wait_until(lambda: reader.id in ours.woken, 10.0, "the reader being woken")
    run(ours.verbs.leave(reader, False, ours.until))

    assert isinstance(look(ours, last), Place)

    release(others, other_reader)
    wait_until(lambda: last.id in ours.woken, 10.0, "the writer being woken")
    assert isinstance(look(ours, last), Granted)
    release(ours, last)


async def test_a_hand_off_costs_two_requests_however_many_wait(
    server: EtcdServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acquire, "FIRST_POLL", 3600.0)
    crowd = 150
    async with aio.connect(server.url, ttl=60.0, namespace=namespace) as locks:
        held = await locks.lock("k").acquire()
        counted: Counter[str] = Counter()
        tokens: list[int] = []

        async def once() -> None:
            async with locks.lock("k") as grant:
                tokens.append(grant.token)

        tasks = [asyncio.create_task(once()) for _ in range(crowd)]

        async def all_wait() -> bool:
            return len((await locks.inspect("k")).waiters) == crowd

        await eventually(all_wait)
        locks._core.engine.wire.counted = lambda method: counted.update([method])  # type: ignore[attr-defined]
        await held.release()
        await asyncio.gather(*tasks)

        assert tokens == sorted(set(tokens))
        assert len(tokens) == crowd
        assert counted[TXN] <= 2 * crowd + 10
        assert counted[RANGE] < 20, "heartbeats aside, the queue is read once"


def ranges(request: Any, answer: Any) -> int:
    """How many ranges a transaction has read or compared, in the branches that were taken."""
    taken = request.success if answer.succeeded else request.failure
    found = sum(bool(compared.range_end) for compared in request.compare)
    for asked, came in zip(taken, answer.responses, strict=True):
        if asked.HasField("request_txn"):
            found += ranges(asked.request_txn, came.response_txn)
        # The marks of claims that were told to go are another range, which is empty here.
        found += bool(asked.request_range.range_end) and b"/l/" in asked.request_range.key
    return found


async def test_no_hand_off_ranges_over_the_queue_if_several_clients_wait(
    server: EtcdServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a range costs etcd grows with its keys. Each client reads the queue when its first waiters come to the head.

    The waiters take turns: the one before each is of another client.
    """
    monkeypatch.setattr(acquire, "FIRST_POLL", 3600.0)
    crowd, many = 60, 3
    asked: list[int] = []

    def count(client: aio.Client) -> None:
        verbs: Any = client._core.verbs
        real = verbs.call

        async def call(request: Request, verb: VerbCall) -> Any:
            answer = await real(request, verb)
            if request.method == TXN:
                asked.append(ranges(message("TxnRequest").FromString(request.message), answer.message))
            return answer

        monkeypatch.setattr(verbs, "call", call)

    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(aio.connect(server.url, ttl=60.0, namespace=namespace)) for _ in range(many)
        ]
        held = await clients[0].lock("k").acquire()

        async def once(client: aio.Client) -> None:
            async with client.lock("k"):
                pass

        tasks = []
        for number in range(crowd):
            tasks.append(asyncio.create_task(once(clients[number % many])))

            async def waits(count: int = number + 1) -> bool:
                return len((await clients[0].inspect("k")).waiters) == count

            await eventually(waits)
        for client in clients:
            count(client)
        await held.release()
        await asyncio.gather(*tasks)

        assert len(asked) > 2 * crowd
        # A few: the one before was gone before the watch for its end had begun.
        assert sum(asked) < crowd / 3


async def test_many_that_time_out_at_once_are_all_told_not_acquired(server: EtcdServer, namespace: str) -> None:
    crowd = 600
    async with (
        aio.connect(server.url, ttl=60.0, namespace=namespace) as locks,
        aio.connect(server.url, ttl=60.0, namespace=namespace) as other,
    ):
        held = await other.lock("k").acquire()
        missed = await asyncio.gather(
            *(locks.lock("k").acquire(wait=0.5) for _ in range(crowd)), return_exceptions=True
        )

        assert [type(each) for each in missed] == [NotAcquired] * crowd
        assert (await other.inspect("k")).waiters == ()
        assert not locks._core.withdrawals
        await held.release()
        async with locks.lock("k", wait=10.0) as after:
            assert after.token > held.token


@pytest.mark.parametrize("kind", ["lock", "read", "semaphore"])
async def test_waiters_that_look_by_themselves_ask_once_for_all(
    server: EtcdServer, namespace: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(acquire, "FIRST_POLL", 0.02)
    monkeypatch.setattr(acquire, "LAST_POLL", 0.05)
    crowd = 60
    async with (
        aio.connect(server.url, ttl=60.0, namespace=namespace) as locks,
        aio.connect(server.url, ttl=60.0, namespace=namespace) as other,
    ):

        def front(client: aio.Client) -> Any:
            if kind == "semaphore":
                return client.semaphore("k", limit=1)
            return client.lock("k") if kind == "lock" else client.rwlock("k").read()

        held = await (other.semaphore("k", limit=1) if kind == "semaphore" else other.lock("k")).acquire()
        looks = 0
        verbs: Any = locks._core.verbs
        enter = verbs.enter

        async def count_looks(claim: Claim, until: float) -> Any:
            nonlocal looks
            looks += 1
            return await enter(claim, until)

        verbs.enter = count_looks
        tasks = [asyncio.create_task(front(locks).acquire()) for _ in range(crowd)]
        await eventually(lambda: looks > 20 * crowd)
        counted: Counter[str] = Counter()
        locks._core.engine.wire.counted = lambda method: counted.update([method])  # type: ignore[attr-defined]
        before = looks
        await eventually(lambda: looks > before + 20 * crowd)
        assert counted[TXN] < 5 * crowd
        await held.release()
        for task in asyncio.as_completed(tasks):
            await (await task).release()


async def test_a_claim_that_waits_behind_others_of_its_client_is_not_told_unavailable(
    server: EtcdServer, namespace: str
) -> None:
    """Its time to be sent is over before its turn comes, while etcd answers the others."""
    async with (
        aio.connect(server.url, ttl=60.0, namespace=namespace) as locks,
        aio.connect(server.url, ttl=60.0, namespace=namespace) as other,
    ):
        held = await other.lock("k").acquire()
        async with locks.lock("warm-up"):
            verbs: Any = locks._core.verbs
            session: Any = locks._core.session
        port, kind = verbs.io.port, f"{locks._core.namespace}.lock"
        claim = Claim(f"{session.id}-{next(session.numbers)}", session.id, "somebody", kind, "k")
        # As if other requests were under way for as long as this one may take.
        port._under_way.update(busy := dict.fromkeys(range(AT_ONCE), 1))
        entering = asyncio.create_task(verbs.enter(claim, verbs.io.now() + 0.2))
        await asyncio.sleep(0)
        port._answered_at = verbs.io.now()
        assert isinstance(await entering, Place)
        for step in busy:
            del port._under_way[step]
        assert (await other.inspect("k")).waiters == ()

        assert isinstance(await verbs.look(claim, verbs.io.now() + 5.0), Place)
        assert [waiter.claim for waiter in (await other.inspect("k")).waiters] == [claim.id]
        await held.release()
