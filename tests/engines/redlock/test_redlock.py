"""A majority of five real servers: exclusion, loss, and what is left behind."""

from __future__ import annotations

import pytest
import redis

import holdfast
from holdfast import EngineUnavailable, InvalidRequest, LockLost, NotAcquired
from tests.conformance.apis import Front
from tests.conformance.stage import PATIENCE, Stage, eventually
from tests.engines.redlock.conftest import Nodes, connected, tried


@pytest.mark.parametrize("hosts", ["h1", "h1,h2", "h1,h1,h2"])
def test_fewer_than_three_nodes_are_refused(hosts: str) -> None:
    with pytest.raises(InvalidRequest, match="3 different nodes"):
        holdfast.connect(f"redlock://{hosts}/0")


async def test_it_says_plainly_what_it_is_good_for(locks: Front) -> None:
    assert "Efficiency, not correctness, unless fenced" in locks.guarantees.summary


async def test_every_node_has_the_same_holder(locks: Front, nodes: Nodes) -> None:
    held = await locks.lock("k").acquire()

    assert set(nodes.holders("k")) == {held.target._hold.claim.id}


async def test_the_token_of_a_holder_is_the_one_that_a_majority_has(locks: Front, nodes: Nodes) -> None:
    """A node whose answers were not heard keeps the token that it has proposed."""
    held = await locks.lock("k").acquire()
    key = "holdfast:1:{holdfast}:lock:lock:k"
    for server, other in zip(nodes.servers, (-7, 7), strict=False):
        with redis.Redis(port=server.port, db=nodes.database) as client:
            assert client.hget(key, "token") is not None
            client.hincrby(key, "token", other)

    assert [holder.token for holder in (await locks.inspect("k")).holders] == [held.token]
    assert [holder.token for info in await locks.list() for holder in info.holders] == [held.token]
    held.check()


async def test_a_release_leaves_nothing_on_any_node(locks: Front, nodes: Nodes) -> None:
    await (await locks.lock("k").acquire()).release()

    await eventually(lambda: nodes.keys() == [set()] * 5)


async def test_a_try_that_failed_leaves_nothing_on_any_node(locks: Front, rival: Front, nodes: Nodes) -> None:
    held = await locks.lock("k").acquire()
    for server in nodes.servers[:2]:
        with redis.Redis(port=server.port, db=nodes.database) as client:
            client.flushdb()
    assert await tried(rival.lock("k")) is None

    assert [holder is not None for holder in nodes.holders("k")] == [False, False, True, True, True]
    held.check()


async def test_two_of_five_may_be_gone(stage: Stage, nodes: Nodes) -> None:
    stage.url = nodes.url_with_limit(0.25)
    locks, rival = [await connected(stage, app) for app in ("locks", "rival")]
    nodes.proxies[0].go_down()
    nodes.proxies[1].requests.set("stall")
    held = await locks.lock("k").acquire(wait=5.0)

    assert await tried(rival.lock("k")) is None
    await held.renew()
    await held.release()
    theirs = await tried(rival.lock("k"))
    assert theirs is not None
    assert theirs.token > held.token


async def test_three_of_five_may_not(nodes: Nodes, locks: Front) -> None:
    await (await locks.lock("warm").acquire()).release()
    for proxy in nodes.proxies[:3]:
        proxy.go_down()
    with pytest.raises(EngineUnavailable):
        await locks.lock("k").acquire(wait=0.5)
    for proxy in nodes.proxies[:3]:
        proxy.heal()

    async def works_again() -> bool:
        try:
            held = await locks.lock("k").acquire(wait=1.0)
        except EngineUnavailable:
            return False
        await held.release()
        return True

    await eventually(works_again)


async def test_a_majority_that_is_slower_than_the_limit_is_waited_for(stage: Stage, nodes: Nodes) -> None:
    """On a busy machine neither a connection nor an answer comes in time, and there is time left all the same."""
    stage.url = nodes.url_with_limit(0.001)
    client = await stage.client()

    for _ in range(10):
        await (await client.lock("k").acquire(wait=PATIENCE)).release()


async def test_a_request_that_arrives_late_at_one_node_leaves_no_ghost_there(stage: Stage, nodes: Nodes) -> None:
    stage.url = nodes.url_with_limit(0.25)
    locks, rival = [await connected(stage, app) for app in ("locks", "rival")]
    late = nodes.proxies[4]
    late.requests.set("stall")
    held = await locks.lock("k").acquire(wait=5.0)
    await held.release()
    late.heal()

    # The late request finds that it was withdrawn, or is followed by the withdrawal.
    await eventually(lambda: locks.target._core.engine.ledger.debts == {}, 15.0)
    assert nodes.holders("k") == [None] * 5
    assert await tried(rival.lock("k")) is not None


async def test_a_release_that_one_node_did_not_hear_is_confirmed_by_the_others(stage: Stage, nodes: Nodes) -> None:
    stage.url = nodes.url_with_limit(0.25)
    locks = await connected(stage, "locks")
    held = await locks.lock("k").acquire()
    nodes.proxies[2].requests.set("stall")
    await held.release()

    assert nodes.holders("k")[2] is not None
    nodes.proxies[2].heal()
    await eventually(lambda: nodes.holders("k") == [None] * 5, 15.0)


async def test_a_lock_that_a_majority_has_lost_is_reported_lost(stage: Stage, nodes: Nodes) -> None:
    client = await stage.client()
    kept, lost = [await client.lock(name).acquire() for name in ("kept", "lost")]
    for server in nodes.servers[:3]:
        with redis.Redis(port=server.port, db=nodes.database) as operator:
            operator.delete("holdfast:1:{holdfast}:lock:lock:lost")
    await kept.renew()

    await eventually(lost.lost.is_set)
    kept.check()
    with pytest.raises(LockLost):
        await lost.release()


async def test_a_lock_that_a_minority_has_lost_is_kept(nodes: Nodes, locks: Front, rival: Front) -> None:
    held = await locks.lock("k").acquire()
    for server in nodes.servers[:2]:
        with redis.Redis(port=server.port, db=nodes.database) as operator:
            operator.flushdb()
    for _ in range(3):
        await held.renew()

    held.check()
    assert await tried(rival.lock("k")) is None


async def test_a_renewal_never_takes_a_lock_again(stage: Stage, nodes: Nodes) -> None:
    client = await stage.client(ttl=10.0)
    held = await client.lock("k").acquire()
    for server in nodes.servers[:2]:
        with redis.Redis(port=server.port, db=nodes.database) as operator:
            operator.flushdb()
    await held.renew()

    assert [holder is not None for holder in nodes.holders("k")] == [False, False, True, True, True]


async def test_without_a_majority_a_lock_is_in_danger_and_then_lost_before_it_expires(
    stage: Stage, nodes: Nodes
) -> None:
    client = await stage.client(ttl=3.0)
    held = await client.lock("k").acquire()
    for proxy in nodes.proxies[:3]:
        proxy.replies.set("drop")
    await eventually(lambda: held.in_danger)
    held.check()

    await eventually(held.lost.is_set)
    assert not held.valid


async def test_scripts_that_a_node_forgot_are_sent_again(nodes: Nodes, locks: Front) -> None:
    await (await locks.lock("k").acquire()).release()
    for server in nodes.servers[:4]:
        with redis.Redis(port=server.port) as operator:
            operator.script_flush()
    held = await locks.lock("k").acquire()

    held.check()
    assert None not in nodes.holders("k")


async def test_tokens_grow_after_all_nodes_have_lost_their_memory(nodes: Nodes, locks: Front, rival: Front) -> None:
    held = await locks.lock("k").acquire()
    for server in nodes.servers:
        with redis.Redis(port=server.port, db=nodes.database) as operator:
            operator.flushdb()
    theirs = await rival.lock("k").acquire(wait=5.0)

    assert theirs.token > held.token


async def test_a_cancelled_or_failed_acquire_leaves_nothing_anywhere(
    stage: Stage, nodes: Nodes, locks: Front, rival: Front
) -> None:
    held = await rival.lock("k").acquire()
    with pytest.raises(NotAcquired):
        await locks.lock("k").acquire(wait=0.3)
    await held.release()

    await eventually(lambda: nodes.holders("k") == [None] * 5)


def test_a_grant_that_a_heartbeat_overtook_is_confirmed_once_more(nodes: Nodes) -> None:
    """The heartbeat's answer moves the deadline of everything that is held, so all of it has to be in it."""
    with holdfast.connect(nodes.url) as locks:
        first = locks.lock("first").acquire()
        ledger = locks._core.engine.ledger  # type: ignore[attr-defined]
        now = locks._core.io.now()
        assert ledger.hold(ledger.session, "x-1", "lock:x", now)
        assert set(ledger.beat(now + 1.0)) == {first._hold.claim.id, "x-1"}
        assert not ledger.hold(ledger.session, "x-2", "lock:x", now)
        ledger.forget("x-1", for_good=True)
        second = locks.lock("second").acquire()

        assert second.valid
        first.release()
        second.release()


def forget(nodes: Nodes, name: str, *which: int) -> None:
    """Let some nodes lose a lock, as a restart does."""
    for node in which:
        with redis.Redis(port=nodes.servers[node].port, db=nodes.database) as client:
            client.delete(f"holdfast:1:{{holdfast}}:lock:lock:{name}")


async def test_a_node_that_is_silent_puts_a_lock_in_danger_before_it_is_lost(stage: Stage, nodes: Nodes) -> None:
    """Two nodes have lost it, and one that is silent may have it: three of five would still be a majority."""
    stage.url = nodes.url_with_limit(0.1)
    client = await stage.client(ttl=3.0)
    held = await client.lock("k").acquire()
    forget(nodes, "k", 0, 1)
    nodes.proxies[2].requests.set("stall")
    with pytest.raises(EngineUnavailable) as error:
        await held.renew()

    assert error.value.outcome == "unknown"
    assert held.in_danger
    assert held.valid
    nodes.proxies[2].heal()
    await eventually(lambda: not held.in_danger)
    held.check()


async def test_what_silent_nodes_leave_open_costs_no_other_lock(stage: Stage, nodes: Nodes) -> None:
    stage.url = nodes.url_with_limit(0.1)
    client = await stage.client(ttl=2.0)
    kept, doubtful = await client.lock("kept").acquire(), await client.lock("doubtful").acquire()
    forget(nodes, "doubtful", 0, 1)
    nodes.proxies[2].requests.set("stall")
    await eventually(lambda: kept.in_danger)
    assert doubtful.valid
    await eventually(lambda: doubtful.lost.is_set())

    kept.check()
    await eventually(lambda: not kept.in_danger)


async def test_a_lock_that_a_majority_has_lost_is_lost_at_once(stage: Stage, nodes: Nodes, locks: Front) -> None:
    held = await locks.lock("k").acquire()
    forget(nodes, "k", 0, 1, 2)
    with pytest.raises(LockLost):
        await held.renew()

    assert not held.valid
