"""Many claims of one client in one queue: only the first of them asks etcd, and nobody overtakes or is forgotten."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from holdfast import NotAcquired, aio
from holdfast.core.table.commands import Done, Notice
from holdfast.engines.etcd.batch import AT_ONCE
from holdfast.engines.etcd.wire import RANGE, TXN
from holdfast.locks import acquire
from holdfast.model import Claim, Granted, Mode, Place
from holdfast.runtime.blocking import run
from holdfast.verify.servers.etcd import EtcdServer
from tests.conformance.stage import eventually
from tests.engines.etcd.conftest import Connect
from tests.engines.etcd.test_recipe import claim_of
from tests.servers.process import wait_until

SEEDS = range(int(os.environ.get("HOLDFAST_SEEDS", "6")))


@dataclass
class Member:
    """One client's claims on one name, driven verb by verb."""

    locks: Any
    waiting: dict[str, Claim] = field(default_factory=dict)
    woken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        engine, deliver = self.locks._core.engine, self.locks._core.engine.deliver

        def hear(notice: Notice) -> None:
            self.woken.add(notice.subject)
            deliver(notice)

        engine.deliver = hear

    @property
    def verbs(self) -> Any:
        return self.locks._core.verbs

    @property
    def until(self) -> float:
        return float(self.verbs.io.now()) + 5.0


class World:
    """Who holds what, by the answers that were given."""

    def __init__(self, members: list[Member], chance: random.Random) -> None:
        self.members, self.chance = members, chance
        self.held: dict[str, tuple[Member, Claim]] = {}
        self.tokens: list[int] = []
        self.served = 0

    def took(self, member: Member, claim: Claim, reply: object) -> None:
        member.waiting.pop(claim.id, None)
        if isinstance(reply, Place):
            member.waiting[claim.id] = claim
            return
        assert isinstance(reply, Granted), reply
        others = [other.mode for _, other in self.held.values()]
        assert not others or {claim.mode, *others} == {"shared"}, "two hold, and one of them alone"
        if claim.mode == "exclusive":
            assert not self.tokens or reply.token > max(self.tokens)
        self.tokens.append(reply.token)
        self.held[claim.id] = member, claim
        self.served += 1

    def enter(self) -> None:
        member = self.chance.choice(self.members)
        mode: Mode = "shared" if self.chance.random() < 0.25 else "exclusive"
        claim = claim_of(member.locks, "k")
        claim = replace(claim, owner=claim.id, mode=mode)
        self.took(member, claim, run(member.verbs.enter(claim, member.until)))

    def release(self) -> None:
        if self.held:
            member, claim = self.held.pop(self.chance.choice(sorted(self.held)))
            assert run(member.verbs.release(claim, member.until)) == Done()

    def leave(self) -> None:
        member = self.chance.choice(self.members)
        if member.waiting:
            claim = member.waiting.pop(self.chance.choice(sorted(member.waiting)))
            run(member.verbs.leave(claim, False, member.until))

    def look(self) -> None:
        """By notice, or because a waiter looks by itself."""
        member = self.chance.choice(self.members)
        if member.waiting:
            claim = member.waiting[self.chance.choice(sorted(member.waiting))]
            verb = member.verbs.look if self.chance.random() < 0.7 else member.verbs.enter
            self.took(member, claim, run(verb(claim, member.until)))

    def drain(self) -> None:
        """Serve all that wait, by notices only."""
        while any(member.waiting for member in self.members):
            while self.held:
                self.release()
            found: list[tuple[Member, Claim]] = []

            def called(found: list[tuple[Member, Claim]] = found) -> bool:
                found[:] = [
                    (member, claim)
                    for member in self.members
                    for claim in list(member.waiting.values())
                    if claim.id in member.woken
                ]
                return bool(found)

            wait_until(called, 10.0, "a waiter being woken")
            for member, claim in found:
                member.woken.discard(claim.id)
                self.took(member, claim, run(member.verbs.look(claim, member.until)))


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_the_order_one_holds_and_every_waiter_is_woken(connect: Connect, seed: int) -> None:
    chance = random.Random(seed)
    members = [Member(connect(ttl=60.0)) for _ in range(1 + seed % 3)]
    for member in members:
        claim_of(member.locks, "k")
    world = World(members, chance)
    acts = [world.enter] * 5 + [world.release] * 2 + [world.leave] * 2 + [world.look] * 2
    for _ in range(120):
        chance.choice(acts)()
    world.drain()
    while world.held:
        world.release()

    info = members[0].locks.inspect("k")
    assert (info.holders, info.waiters) == ((), ())
    for member in members:
        assert not member.locks._core.engine.shared.ledger._queues


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
        port._steps += AT_ONCE
        entering = asyncio.create_task(verbs.enter(claim, verbs.io.now() + 0.2))
        await asyncio.sleep(0)
        port._answered_at = verbs.io.now()
        assert isinstance(await entering, Place)
        port._steps -= AT_ONCE
        assert (await other.inspect("k")).waiters == ()

        assert isinstance(await verbs.look(claim, verbs.io.now() + 5.0), Place)
        assert [waiter.claim for waiter in (await other.inspect("k")).waiters] == [claim.id]
        await held.release()
