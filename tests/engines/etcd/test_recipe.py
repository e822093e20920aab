"""What the recipe costs, what it leaves behind, and what it does with claims whose fate was unknown."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

import holdfast
from holdfast import EngineUnavailable, aio
from holdfast.core.table.commands import WrongLimit
from holdfast.core.urls import parse
from holdfast.engines.etcd import steps
from holdfast.engines.etcd.address import parse_address
from holdfast.engines.etcd.cells import BASE_LASTS
from holdfast.engines.etcd.keys import end_of, lease_of
from holdfast.engines.etcd.line import MISSING
from holdfast.engines.etcd.messages import message
from holdfast.engines.etcd.outcome import VerbCall
from holdfast.engines.etcd.wire import LEASE_KEEP_ALIVE, LEASE_REVOKE, RANGE, Answer, EtcdPort, Request, Wire, serialize
from holdfast.locks.tokens import raise_tokens
from holdfast.model import Claim, Gone, Granted, Place
from holdfast.runtime import clock
from holdfast.runtime.blocking import run
from holdfast.verify.servers.etcd import EtcdServer
from tests.engines.etcd.conftest import Connect
from tests.engines.etcd.peer import V3Lock
from tests.servers.process import wait_until

BEAT = (LEASE_KEEP_ALIVE, RANGE)
"""What a heartbeat sends; it goes on beside whatever is counted."""


def count(locks: Any) -> Counter[str]:
    """The requests that a client sends from now on, heartbeats and looks of people aside."""
    counted: Counter[str] = Counter()
    lock = threading.Lock()

    def add(method: str) -> None:
        if method not in BEAT:
            with lock:
                counted[method] += 1

    locks._core.engine.wire.counted = add
    return counted


def keys(server: EtcdServer, namespace: str) -> list[str]:
    """What is left of a namespace."""
    peer = V3Lock(server)
    read = peer.channel.unary_unary("/etcdserverpb.KV/Range", serialize, message("RangeResponse").FromString)
    root = f"/holdfast/1/{namespace}/".encode()
    found = read(message("RangeRequest")(key=root, range_end=end_of(root)), timeout=5.0).kvs
    peer.close()
    return [kv.key.decode().removeprefix(root.decode()) for kv in found]


def claim_of(locks: Any, name: str) -> Claim:
    """A claim of this client that the engine has not heard of."""
    with locks.lock("warm-up"):
        session = locks._core.session
    return Claim(f"{session.id}-{next(session.numbers)}", session.id, "somebody", f"{locks._core.namespace}.lock", name)


def test_an_uncontended_pair_is_two_requests(connect: Connect) -> None:
    locks = connect()
    with locks.lock("k"):
        counted = count(locks)
    counted.clear()
    for _ in range(10):
        locks.lock("k").acquire().release()

    assert counted["KV/Txn"] == 20
    assert counted.total() <= 21  # the watch of the session itself may have come late


@pytest.mark.parametrize("what", ["semaphore", "read"])
def test_an_uncontended_permit_or_read_lock_is_two_requests_too(connect: Connect, what: str) -> None:
    locks = connect()
    lock: Any = locks.semaphore("s", limit=4) if what == "semaphore" else locks.rwlock("k").read()
    lock.acquire().release()
    counted = count(locks)
    for _ in range(10):
        lock.acquire().release()

    assert counted["KV/Txn"] == 20
    assert counted.total() <= 21  # the watch of the session itself may have come late


async def turns(url: str, namespace: str, waiters: int, rounds: int) -> float:
    """Many tasks take turns on one lock: requests for each grant."""
    async with aio.connect(url, namespace=namespace) as locks:
        await (await locks.lock("k").acquire()).release()
        counted = count(locks)

        async def work() -> None:
            for _ in range(rounds):
                async with locks.lock("k"):
                    await asyncio.sleep(0)

        await asyncio.gather(*(work() for _ in range(waiters)))
        return sum(counted.values()) / (waiters * rounds)


async def test_requests_for_a_grant_do_not_grow_with_the_number_of_waiters(server: EtcdServer, namespace: str) -> None:
    few = await turns(server.url, namespace, 4, 12)
    many = await turns(server.url, namespace, 48, 2)

    assert few <= 5.0
    assert many <= 5.0


async def test_transactions_of_many_tasks_travel_together(server: EtcdServer, namespace: str) -> None:
    async with aio.connect(server.url, namespace=namespace) as locks:
        await (await locks.lock("k").acquire()).release()
        counted = count(locks)
        grants = await asyncio.gather(*(locks.lock(f"k{number}").acquire() for number in range(64)))
        tokens = {grant.token for grant in grants}
        for grant in grants:
            await grant.release()

        assert counted["KV/Txn"] < 64 + 8
        assert len(tokens) < 8


async def test_tokens_of_one_name_grow_though_tasks_ask_together(server: EtcdServer, namespace: str) -> None:
    async with aio.connect(server.url, namespace=namespace) as locks:
        tokens: list[int] = []

        async def work() -> None:
            for _ in range(3):
                async with locks.lock("k") as grant:
                    tokens.append(grant.token)

        await asyncio.gather(*(work() for _ in range(16)))
        assert tokens == sorted(set(tokens))


def test_nothing_is_left_behind_but_the_base(server: EtcdServer, connect: Connect, namespace: str) -> None:
    locks, rival = connect(), connect()
    held = locks.lock("a/b").acquire()
    locks.semaphore("s", limit=2).acquire().release()
    assert rival.lock("a/b").try_acquire() is None
    rival.break_lock("a/b")
    again = rival.lock("a/b").acquire(wait=5.0)
    adopted = locks.adopt(again.hand_over())
    assert not held.valid
    adopted.release()
    locks.close()
    rival.close()

    wait_until(lambda: keys(server, namespace) == ["base"], 10.0, "everything being cleared away")


def test_an_enter_that_arrives_after_its_withdrawal_finds_a_tombstone(connect: Connect) -> None:
    locks = connect()
    verbs, claim = locks._core.verbs, claim_of(locks, "k")
    until = verbs.io.now() + 5.0
    run(verbs.leave(claim, True, until))
    late = run(verbs.enter(claim, until))

    assert isinstance(late, Gone)
    assert locks.inspect("k").holders == ()


def test_without_a_tombstone_it_would_hold_for_ever(connect: Connect) -> None:
    """The control: the same without saying that the enter may still be on its way."""
    locks = connect()
    verbs, claim = locks._core.verbs, claim_of(locks, "k")
    until = verbs.io.now() + 5.0
    run(verbs.leave(claim, False, until))

    assert isinstance(run(verbs.enter(claim, until)), Granted)


def test_a_permit_that_arrives_after_its_withdrawal_finds_a_tombstone_too(connect: Connect) -> None:
    locks = connect()
    verbs, claim = locks._core.verbs, claim_of(locks, "s")
    claim = Claim(claim.id, claim.session, "somebody", f"{locks._core.namespace}.semaphore", "s", limit=2)
    until = verbs.io.now() + 5.0
    run(verbs.leave(claim, True, until))

    assert isinstance(run(verbs.enter(claim, until)), Gone)
    assert locks.inspect("s", kind="semaphore").holders == ()


def test_an_enter_that_is_repeated_is_confirmed_by_a_write_of_its_own(connect: Connect) -> None:
    locks = connect()
    verbs, claim = locks._core.verbs, claim_of(locks, "k")
    until = verbs.io.now() + 5.0
    first = run(verbs.enter(claim, until))
    ledger: Any = verbs
    ledger.ledger.forget(claim.id)  # as if the reply had been lost
    again = run(verbs.enter(claim, until))

    assert isinstance(first, Granted)
    assert isinstance(again, Granted)
    assert again.token > first.token
    assert [holder.token for holder in locks.inspect("k").holders] == [again.token]


def test_a_release_that_is_repeated_after_the_session_ran_out_was_not_done(connect: Connect) -> None:
    """Nothing is there, as if its first try had removed it. But the lock was lost before, and may be another's."""
    locks = connect()
    verbs: Any = locks._core.verbs
    claim, until, call = claim_of(locks, "k"), verbs.io.now() + 5.0, verbs.call
    assert isinstance(run(verbs.enter(claim, until)), Granted)
    run(call(Request(LEASE_REVOKE, message("LeaseRevokeRequest")(ID=lease_of(claim.session))), VerbCall(until)))

    async def repeated(request: Request, verb: VerbCall) -> Answer:
        answer: Answer = await call(request, verb)
        return replace(answer, repeated=True)

    verbs.call = repeated

    assert run(verbs.release(claim, until)) == Gone(MISSING)


def test_a_waiter_is_granted_with_a_token_above_an_adoption_before_it(connect: Connect) -> None:
    """A token minted on queueing would be overtaken by the hand-over's."""
    locks, rival = connect(), connect()
    sent = locks.lock("k").acquire()
    got: list[holdfast.Grant] = []
    waiter = threading.Thread(target=lambda: got.append(rival.lock("k").acquire()))
    waiter.start()
    wait_until(lambda: len(locks.inspect("k").waiters) == 1, 10.0, "standing in line")
    adopted = locks.adopt(sent.hand_over())
    adopted.release()
    waiter.join(10.0)

    assert got[0].token > adopted.token > sent.token
    got[0].release()
    wait_until(lambda: not sent.valid, 10.0, "the sender hearing of it")


def test_the_next_in_line_removes_a_broken_claim_if_the_breaker_is_gone(connect: Connect) -> None:
    dead, breaker, locks = connect(ttl=30.0), connect(), connect()
    held = dead.lock("k").acquire(wait=5.0)
    core = dead._core
    assert core.keeper is not None
    core.keeper.stop()  # it reads no note, and its lease goes on for half a minute
    verbs: Any = breaker._core.verbs
    (row,) = run(verbs._line_rows(f"{core.namespace}.lock", "k", VerbCall(verbs.io.now() + 5.0)))
    # As if its ttl were short: nobody wants to wait for half a minute here either.
    assert run(verbs._break(replace(row, record=replace(row.record, ttl=1.0)), False, VerbCall(verbs.io.now() + 5.0)))
    breaker.close()
    after = locks.lock("k").acquire(wait=25.0)

    assert after.token > held.token
    after.release()
    with pytest.raises(holdfast.LockLost):
        held.release()


def test_tokens_can_be_raised_when_nobody_is_connected(connect: Connect) -> None:
    first = connect()
    before = first.lock("k").acquire()
    operator = connect()
    with pytest.raises(EngineUnavailable, match="while clients are connected"):
        run(raise_tokens(operator._core, before.token + 10**9))
    first.close()
    run(raise_tokens(operator._core, before.token + 10**9))

    with connect().lock("k") as after:
        assert after.token > before.token + 10**9


def test_who_only_reads_cells_hears_in_time_that_tokens_were_raised(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, operator = connect(), connect()
    before = reader.cell("c").set("v")
    assert reader.cell("c").get() == ("v", before)
    run(raise_tokens(operator._core, before + 10**9))
    soon = clock.now() + BASE_LASTS
    monkeypatch.setattr(clock, "now", lambda: soon)

    assert reader.cell("c").get()[1] > before + 10**9


def test_a_namespace_of_a_newer_layout_is_refused(server: EtcdServer, connect: Connect, namespace: str) -> None:
    peer = V3Lock(server)
    write = peer.channel.unary_unary("/etcdserverpb.KV/Put", serialize, message("PutResponse").FromString)
    write(message("PutRequest")(key=f"/holdfast/1/{namespace}/base".encode(), value=b'{"layout": 2, "base": 5}'))
    peer.close()

    with pytest.raises(EngineUnavailable, match="layout 2"):
        connect().lock("k").acquire()


def test_a_place_behind_another_is_not_granted_by_looking(connect: Connect) -> None:
    locks = connect()
    held = locks.lock("k").acquire()
    verbs, claim = locks._core.verbs, claim_of(locks, "k")
    until = verbs.io.now() + 5.0

    assert isinstance(run(verbs.enter(claim, until)), Place)
    assert isinstance(run(verbs.look(claim, until)), Place)
    held.release()
    assert isinstance(run(verbs.look(claim, until)), Granted)
    run(verbs.release(claim, until))


def test_a_latch_that_is_used_often_keeps_one_lease(server: EtcdServer, connect: Connect) -> None:
    def leases() -> set[int]:
        peer = V3Lock(server)
        ask = peer.channel.unary_unary(
            "/etcdserverpb.Lease/LeaseLeases", serialize, message("LeasesResponse").FromString
        )
        found = {status.ID for status in ask(message("LeasesRequest")(), timeout=5.0).leases}
        peer.close()
        return found

    latch = connect().latch("l", count=5)
    before = leases()
    for _ in range(5):
        latch.count_down()

    assert len(leases() - before) == 1


def test_a_result_that_etcd_has_no_room_for_ends_in_an_error() -> None:
    """It goes on renewing the lease: waiting for that to end would be waiting for ever."""
    with (
        EtcdServer("--quota-backend-bytes", str(2 << 20)) as small,
        holdfast.connect(small.url, ttl=2.0) as locks,
    ):
        wire = Wire(parse_address(parse(small.url)))

        def fill(grant: holdfast.Grant) -> str:
            for number in range(1000):
                big = steps.put(f"/filler/{number}".encode(), b"x" * 500_000)
                try:
                    EtcdPort(wire).call(steps.step([], [big], repeats=False), clock.now() + 10.0)
                except EngineUnavailable:
                    return "done"
            raise AssertionError("it is never full")

        try:
            with pytest.raises(EngineUnavailable, match="space"):
                locks.once("k").run(fill)
        finally:
            wire.close()


def permit_of(locks: Any, limit: int) -> Claim:
    claim = claim_of(locks, "k")
    return replace(claim, owner=claim.id, kind=f"{locks._core.namespace}.semaphore", limit=limit)


@pytest.mark.parametrize("held", [True, False], ids=["held", "waited for"])
def test_a_claim_with_another_limit_is_refused_and_refuses_nobody(
    server: EtcdServer, connect: Connect, namespace: str, held: bool
) -> None:
    """It never comes into the queue, where it would be the reason to refuse all that come after it."""
    holder, waiter, locks = connect(), connect(), connect()
    first, second, wrong = permit_of(holder, 1), permit_of(waiter, 1), permit_of(locks, 2)
    until = locks._core.io.now() + 5.0
    assert isinstance(run(holder._core.verbs.enter(first, until)), Granted)
    assert isinstance(run(waiter._core.verbs.enter(second, until)), Place)
    if not held:
        run(holder._core.verbs.release(first, until))
    before = keys(server, namespace)
    counted = count(locks)

    assert run(locks._core.verbs.enter(wrong, until)) == WrongLimit(1)
    assert keys(server, namespace) == before
    assert counted.total() == 1
    assert isinstance(run(holder._core.verbs.enter(permit_of(holder, 1), until)), Place)
