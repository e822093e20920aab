"""A session that ends while its client holds, waits, or has not heard of what it created; a server that restarts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

import holdfast
from holdfast import EngineUnavailable, LockLost
from holdfast.engines.zookeeper.claims import ClaimVerbs
from holdfast.engines.zookeeper.line import Layout
from holdfast.verify.proxy import Proxy
from tests.engines.zookeeper.patience import eventually
from tests.servers.zookeeper import ZooKeeperServer

TTL = 1.5


@pytest.fixture
def near(url: str) -> Iterator[holdfast.Client]:
    with holdfast.connect(url) as client:
        yield client


@pytest.fixture
def far(far_url: str, proxy: Proxy) -> Iterator[holdfast.Client]:
    """A client behind the proxy, with a session already."""
    client = holdfast.connect(far_url, ttl=TTL)
    client.lock("warm").acquire().release()
    yield client
    proxy.heal()
    client.close()


@pytest.fixture
def kazoo(server: ZooKeeperServer) -> Iterator[KazooClient]:
    """Another library's client, with nothing between it and the server."""
    client = KazooClient(server.address)
    client.start()
    yield client
    client.stop()
    client.close()


def far_kazoo(proxy: Proxy, ttl: float = TTL) -> KazooClient:
    return KazooClient(f"127.0.0.1:{proxy.port}", timeout=ttl, connection_retry={"max_tries": -1, "delay": 0.05})


def take(client: holdfast.Client) -> holdfast.Grant:
    """Take the lock, asking again as long as the server cannot be reached."""
    while True:
        try:
            return client.lock("k").acquire(wait=40.0)
        except EngineUnavailable:
            continue


def nodes(kazoo: KazooClient, chroot: str, name: str = "k") -> list[str]:
    """The nodes in a line."""
    line = Layout(chroot, "holdfast").line("holdfast.lock", name)
    return sorted(kazoo.get_children(line)) if kazoo.exists(line) else []


def test_a_session_that_ends_while_it_holds_is_lost_before_another_holds(
    near: holdfast.Client, far: holdfast.Client, proxy: Proxy
) -> None:
    held = far.lock("k").acquire()
    proxy.requests.set("stall")
    theirs = near.lock("k").acquire(wait=30.0)
    was_valid = held.valid

    assert not was_valid
    assert theirs.token > held.token
    proxy.heal()
    with pytest.raises(LockLost):
        held.check()
    theirs.release()
    again = take(far)
    assert again.token > theirs.token
    again.release()


def test_a_session_that_ends_while_it_waits_is_granted_under_a_new_one_only(
    near: holdfast.Client, far: holdfast.Client, proxy: Proxy, kazoo: KazooClient, chroot: str
) -> None:
    held = near.lock("k").acquire()
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(take, far)
        eventually(lambda: len(nodes(kazoo, chroot)) == 2, "standing in line")
        before = nodes(kazoo, chroot)
        proxy.requests.set("stall")
        eventually(lambda: len(nodes(kazoo, chroot)) == 1, "the session ending")
        proxy.heal()
        proxy.cut()
        held.release()
        theirs = waiting.result(40.0)

    assert theirs.valid
    now = nodes(kazoo, chroot)
    assert len(now) == 1
    assert now[0] not in before
    theirs.release()


def test_a_create_whose_reply_was_lost_is_found_and_not_repeated(
    far: holdfast.Client, proxy: Proxy, kazoo: KazooClient, chroot: str
) -> None:
    far.lock("k").acquire().release()
    proxy.replies.set("cut", after=0)
    held = far.lock("k").acquire(wait=10.0)

    assert proxy.accepted > 1
    assert len(nodes(kazoo, chroot)) == 1
    held.check()
    held.release()
    assert nodes(kazoo, chroot) == []


@pytest.mark.parametrize("byte", [*range(0, 60, 7), *range(60, 400, 31)])
def test_an_acquire_that_is_cut_at_any_byte_is_granted_once(
    far: holdfast.Client, proxy: Proxy, kazoo: KazooClient, chroot: str, byte: int
) -> None:
    far.lock("k").acquire().release()
    for way in (proxy.requests, proxy.replies):
        way.set("cut", after=byte)
        held = far.lock("k").acquire(wait=10.0)
        proxy.heal()
        assert len(nodes(kazoo, chroot)) == 1
        held.release()
        assert nodes(kazoo, chroot) == []


@pytest.mark.parametrize("byte", [0, 7, 60, 150])
@pytest.mark.parametrize("lost", ["requests", "replies"])
def test_a_client_that_is_cut_off_while_it_closes_gives_everything_back(
    far: holdfast.Client, proxy: Proxy, kazoo: KazooClient, chroot: str, lost: str, byte: int
) -> None:
    held = far.lock("k").acquire()
    (proxy.requests if lost == "requests" else proxy.replies).set("cut", after=byte)

    far.close()

    assert nodes(kazoo, chroot) == []
    assert not held.valid


@pytest.mark.parametrize("byte", [0, *range(5, 400, 45)])
def test_a_hand_off_that_is_cut_at_any_byte_reaches_the_one_who_waits(
    near: holdfast.Client, far: holdfast.Client, proxy: Proxy, kazoo: KazooClient, chroot: str, byte: int
) -> None:
    for way in (proxy.requests, proxy.replies):
        held = near.lock("k").acquire()
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(take, far)
            eventually(lambda: len(nodes(kazoo, chroot)) == 2, "standing in line")
            way.set("cut", after=byte)
            held.release()
            theirs = waiting.result(40.0)
        proxy.heal()
        assert theirs.token > held.token
        assert len(nodes(kazoo, chroot)) == 1
        theirs.release()
        assert nodes(kazoo, chroot) == []


def test_a_session_that_ends_between_create_and_reply_leaves_nothing_and_holds_nothing(
    near: holdfast.Client, far: holdfast.Client, proxy: Proxy, kazoo: KazooClient, chroot: str
) -> None:
    far.lock("k").acquire().release()
    proxy.replies.set("stall")
    with ThreadPoolExecutor(1) as thread:
        taking = thread.submit(far.lock("k").acquire, 40.0)
        eventually(lambda: len(nodes(kazoo, chroot)) == 1, "the creation")
        proxy.requests.set("stall")
        theirs = near.lock("k").acquire(wait=30.0)
        with pytest.raises(EngineUnavailable):
            taking.result(40.0)
        proxy.cut()
        proxy.heal()

    assert len(nodes(kazoo, chroot)) == 1
    eventually(lambda: _misses(far), "a new session")
    assert len(nodes(kazoo, chroot)) == 1
    theirs.release()
    held = take(far)
    assert held.token > theirs.token
    held.release()


def _misses(client: holdfast.Client) -> bool:
    """Whether it is told that somebody else holds the lock."""
    try:
        return client.lock("k").try_acquire() is None
    except EngineUnavailable:
        return False


# Trap 24


def test_control_kazoos_lock_adopts_the_dying_node_of_its_former_session(
    proxy: Proxy, kazoo: KazooClient, chroot: str
) -> None:
    """It says that it holds, and somebody else does."""
    victim = far_kazoo(proxy, ttl=4.0)
    victim.start()
    lock = victim.Lock(f"{chroot}/k")
    kazoo.ensure_path(f"{chroot}/k")
    lock.assured_path = True
    proxy.replies.set("drop")
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(lock.acquire)
        eventually(lambda: kazoo.get_children(f"{chroot}/k"), "the creation")
        proxy.go_down()
        victim._stopped.set()  # the process gives its session up without being able to say so
        with pytest.raises(KazooException):
            first.result(40.0)
    eventually(lambda: not victim.connected)
    victim._connection.stop(10)
    proxy.heal()
    victim.start()

    assert lock.acquire(timeout=10.0)
    rival = kazoo.Lock(f"{chroot}/k")
    assert rival.acquire(timeout=30.0)
    both_hold = lock.is_acquired and rival.is_acquired
    victim.stop()
    victim.close()
    assert both_hold


def test_a_dying_node_of_a_former_session_is_not_adopted(
    near: holdfast.Client, far: holdfast.Client, proxy: Proxy, kazoo: KazooClient, chroot: str
) -> None:
    far.lock("k").acquire().release()
    proxy.replies.set("drop")
    with ThreadPoolExecutor(1) as thread:
        taking = thread.submit(take, far)
        eventually(lambda: len(nodes(kazoo, chroot)) == 1, "the creation")
        dying = nodes(kazoo, chroot)
        proxy.go_down()
        # Given up by its own deadline, while the server still keeps it.
        eventually(lambda: far._core.session is not None and far._core.session.over is not None)
        proxy.heal()
        held = taking.result(40.0)

    assert nodes(kazoo, chroot) != dying
    held.check()
    assert near.lock("k").try_acquire() is None
    held.release()


# Trap 25


def test_control_kazoos_lock_leaves_a_contender_behind_that_blocks_everybody(
    proxy: Proxy, kazoo: KazooClient, chroot: str
) -> None:
    # What is cut may be a ping, a moment before the withdrawal: then that is sent again. One of several is enough.
    assert any(_leaves_a_contender(proxy, kazoo, f"{chroot}/k{number}") for number in range(5))


def _leaves_a_contender(proxy: Proxy, kazoo: KazooClient, path: str) -> bool:
    """Whether a waiter of kazoo whose withdrawal was cut off blocks everybody."""
    held = kazoo.Lock(path)
    assert held.acquire()
    victim = far_kazoo(proxy, ttl=10.0)
    victim.start()
    with ThreadPoolExecutor(1) as thread:
        missing = thread.submit(_miss, victim, path)
        eventually(lambda: len(kazoo.get_children(path)) == 2, "standing in line")
        proxy.requests.set("cut", after=0)
        missing.result(40.0)
    eventually(lambda: victim.connected)
    held.release()
    left = kazoo.get_children(path)
    blocked = not kazoo.Lock(path).acquire(blocking=False)
    victim.stop()
    victim.close()
    return len(left) == 1 and blocked


def _miss(client: KazooClient, path: str) -> None:
    with pytest.raises(KazooException):
        client.Lock(path).acquire(timeout=0.5)


def test_a_waiter_whose_withdrawal_was_cut_off_leaves_no_contender(
    near: holdfast.Client, far_url: str, proxy: Proxy, kazoo: KazooClient, chroot: str
) -> None:
    held = near.lock("k").acquire()
    with holdfast.connect(far_url, ttl=10.0) as far:
        far.lock("warm").acquire().release()
        with ThreadPoolExecutor(1) as thread:
            missing = thread.submit(_miss_ours, far)
            eventually(lambda: len(nodes(kazoo, chroot)) == 2, "standing in line")
            proxy.requests.set("cut", after=0)
            missing.result(40.0)
        eventually(lambda: len(nodes(kazoo, chroot)) == 1, "the withdrawal")
        held.release()

        again = near.lock("k").try_acquire()
        assert again is not None
        again.release()


def _miss_ours(client: holdfast.Client) -> None:
    with pytest.raises((holdfast.NotAcquired, EngineUnavailable)):
        client.lock("k").acquire(wait=0.5)


# The server


def test_a_restart_of_the_server_costs_neither_lock_nor_place_nor_token(chroot: str) -> None:
    queued = threading.Event()
    with ZooKeeperServer() as server, ThreadPoolExecutor(1) as thread:
        with holdfast.connect(server.url + chroot) as first, holdfast.connect(server.url + chroot) as second:
            held = first.lock("k").acquire()
            waiting = thread.submit(second.lock("k", on_wait=lambda place: queued.set()).acquire)
            assert queued.wait(20.0)
            server.kill()
            eventually(lambda: held.in_danger)
            server.start()
            eventually(lambda: not held.in_danger)
            held.check()
            assert not waiting.done()
            held.release()
            theirs = waiting.result(40.0)

            assert theirs.token > held.token
            theirs.release()


def test_an_acquire_that_fails_after_its_creation_leaves_no_ghost(
    near: holdfast.Client, far_url: str, proxy: Proxy, kazoo: KazooClient, chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is lost between the creation, which was answered, and the watch that was to follow."""
    watch = ClaimVerbs._watch

    async def cut_and_watch(self: ClaimVerbs, *args: Any) -> bool:
        proxy.go_down()
        eventually(lambda: not self.ledger.links()[0].connected)
        return await watch(self, *args)

    held = near.lock("k").acquire()
    with holdfast.connect(far_url, ttl=10.0) as far:
        far.lock("warm").acquire().release()
        monkeypatch.setattr(ClaimVerbs, "_watch", cut_and_watch)
        with pytest.raises(EngineUnavailable) as unavailable:
            far.lock("k").acquire(wait=0.3)
        assert unavailable.value.outcome == "unknown"
        assert len(nodes(kazoo, chroot)) == 2
        proxy.heal()
        eventually(lambda: len(nodes(kazoo, chroot)) == 1, "the withdrawal")
        held.release()


def test_looking_does_not_keep_alive_what_was_given_up(near: holdfast.Client, url: str) -> None:
    """Every request proves to ZooKeeper that its session lives, whoever sends it and for whatever."""
    with holdfast.connect(url, ttl=1.0) as quiet, ThreadPoolExecutor(1) as thread:
        held = quiet.lock("k").acquire()
        assert quiet._core.keeper is not None
        quiet._core.keeper.stop()
        waiting = thread.submit(near.lock("k").acquire, 20.0)
        while not waiting.done():
            quiet.inspect("other")

        assert not held.valid
        waiting.result().release()
