"""Who follows a leader that is gone, and when: its beats in etcd count, not how long etcd keeps its lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from functools import partial

import pytest

from holdfast.errors import EngineUnavailable
from holdfast.runtime import clock
from holdfast.server.cluster import store as cluster_store
from holdfast.server.cluster.wire import read
from holdfast.server.store import Deposed, StoreFull
from holdfast.verify.servers.etcd import EtcdServer
from tests.server.replica import Replica
from tests.server.test_cluster_store import fill

LEASE = 2
FEW_LEASES = 3.0 * LEASE


@pytest.fixture
async def replicas(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AsyncExitStack]:
    """Ends those that are put into it."""
    monkeypatch.setenv("HOLDFAST_SHORTEST_LEASE", str(LEASE))
    async with AsyncExitStack() as stack:
        yield stack


def replica(stack: AsyncExitStack, etcd: EtcdServer, id_: str, lease: int = LEASE) -> Replica:
    made = Replica(f"{etcd.url}?lease={lease}", id_)
    stack.push_async_callback(made.stop)
    return made


async def test_a_leader_that_is_gone_is_followed_though_etcd_keeps_its_lease(replicas: AsyncExitStack) -> None:
    """As each election of etcd's own leader does, which begins all leases anew."""
    with EtcdServer() as etcd:
        leader = replica(replicas, etcd, "one")
        await leader.lead()
        follower = replica(replicas, etcd, "two")
        await follower.start()
        await follower.until(lambda: follower.node.leader is not None)
        lease, deadline = leader.node.membership.lease, leader.node.membership.deadline
        keys, other = leader.store.keys, follower.store.etcd
        await leader.until(lambda: leader.node.beats.revision > 0)
        leader.node._renewing.cancel()  # type: ignore[union-attr]

        async def keep() -> None:
            while True:
                await other.keep_alive(lease, clock.now() + 5.0)
                await asyncio.sleep(0.1)

        keeping = asyncio.create_task(keep())
        await follower.until(lambda: follower.store.leads)
        assert clock.now() > deadline
        assert not leader.store.may_answer()
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        await other.keep_alive(lease, clock.now() + 5.0)
        (found, _) = await read(other.call, keys.leader)
        assert found is not None
        assert found.lease != lease
        await leader.look_away()


async def test_a_leader_that_renews_is_not_followed(replicas: AsyncExitStack) -> None:
    with EtcdServer() as etcd:
        leader = await replica(replicas, etcd, "one").lead()
        follower = await replica(replicas, etcd, "two").start()
        term, end = leader.store.term, clock.now() + FEW_LEASES
        await leader.until(lambda: clock.now() > end)

        assert leader.store.term == term
        assert not follower.store.leads


async def test_a_term_of_its_own_under_a_lost_lease_is_ended_at_once(
    replicas: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EtcdServer() as etcd:
        leader = await replica(replicas, etcd, "one", lease=600).lead()
        term = leader.store.term

        async def unreachable(*_: object) -> None:
            raise EngineUnavailable("etcd", "it is out of reach", "unknown")

        monkeypatch.setattr(leader.store.etcd, "revoke", unreachable)
        leader.node.membership.lose()
        leader.node.deposed(Deposed("etcd", "its lease ran out"))
        await leader.until(lambda: leader.store.leads)
        monkeypatch.undo()

        assert leader.store.term > term


async def test_a_leader_on_a_full_etcd_renews_its_lease_without_beats(replicas: AsyncExitStack) -> None:
    """A full etcd takes removals only: the leader cannot write a beat, and removes the last one."""
    with EtcdServer("--quota-backend-bytes", str(2 << 20)) as small:
        leader = await replica(replicas, small, "one", lease=600).lead()
        membership, beats, term = leader.node.membership, leader.node.beats, leader.store.term
        await membership.renew(partial(beats.write, term))
        assert (await read(leader.store.etcd.call, leader.store.keys.beat))[0] is not None
        with pytest.raises(StoreFull):
            await fill(leader)
        for _ in range(2):
            before = membership.deadline
            await membership.renew(partial(beats.write, term))

            assert membership.deadline > before
            assert (await read(leader.store.etcd.call, leader.store.keys.beat))[0] is None


async def test_the_history_of_an_idle_cluster_is_compacted(
    replicas: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_store, "COMPACT_EVERY", 0.0)
    with EtcdServer() as etcd:
        leader = await replica(replicas, etcd, "one").lead()
        compacted: list[int] = []
        compact = leader.store.etcd.compact

        async def watched(revision: int) -> None:
            await compact(revision)
            compacted.append(revision)

        monkeypatch.setattr(leader.store.etcd, "compact", watched)
        await leader.until(lambda: len(compacted) > 1)

        assert compacted == sorted(set(compacted))
