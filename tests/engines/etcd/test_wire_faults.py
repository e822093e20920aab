"""A way to etcd on which requests and replies get lost, and a server that is started again."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import holdfast
from holdfast import EngineUnavailable, HoldfastError, LockLost
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.etcd import EtcdServer
from tests.engines.etcd.conftest import Connect
from tests.servers.process import wait_until


def through(proxy: Proxy) -> str:
    return f"etcd://127.0.0.1:{proxy.port}"


def background(work: Any) -> tuple[threading.Thread, list[Any]]:
    """What a thread of its own came to: its result, or what it raised."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(work())
        except HoldfastError as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def test_a_holder_that_is_cut_off_has_lost_before_another_holds(connect: Connect, proxy: Proxy) -> None:
    cut_off, rival = connect(through(proxy), ttl=1.0), connect()
    held = cut_off.lock("k").acquire()
    proxy.requests.set("stall")
    seen: list[bool] = []
    after = rival.lock("k").acquire(wait=20.0)
    seen.append(held.valid)

    assert seen == [False]
    assert after.token > held.token
    wait_until(held.lost.is_set, 10.0, "the loss being told")
    proxy.heal()
    with pytest.raises(LockLost):
        held.release()
    assert after.valid
    after.release()


@pytest.mark.parametrize("lost", ["requests", "replies"])
def test_a_session_that_ends_between_a_create_and_its_reply_leaves_nothing(
    connect: Connect, proxy: Proxy, lost: str
) -> None:
    cut_off, rival = connect(through(proxy), ttl=1.0), connect()
    cut_off.lock("warm-up").acquire().release()
    way = proxy.requests if lost == "requests" else proxy.replies
    way.set("stall")
    thread, outcome = background(lambda: cut_off.lock("k").acquire(wait=2.0))
    thread.join(20.0)
    assert isinstance(outcome[0], EngineUnavailable)
    wait_until(lambda: rival.inspect("k").holders == (), 20.0, "the session running out")
    proxy.heal()
    again = cut_off.lock("k").acquire(wait=10.0)

    assert [holder.token for holder in rival.inspect("k").holders] == [again.token]
    again.release()


def test_a_create_whose_reply_was_lost_is_held_once(connect: Connect, proxy: Proxy) -> None:
    locks, rival = connect(through(proxy)), connect()
    locks.lock("warm-up").acquire().release()
    proxy.replies.set("cut", after=0)
    held = locks.lock("k").acquire(wait=10.0)

    assert [holder.token for holder in rival.inspect("k").holders] == [held.token]
    held.release()
    with rival.lock("k", wait=0) as after:
        assert after.token > held.token


def test_a_release_whose_reply_was_lost_is_done(connect: Connect, proxy: Proxy) -> None:
    locks, rival = connect(through(proxy)), connect()
    held = locks.lock("k").acquire()
    proxy.replies.set("cut", after=0)
    held.release()

    assert rival.inspect("k").holders == ()
    assert not held.valid


@pytest.mark.parametrize("kind", ["lock", "semaphore"])
def test_an_acquire_that_hung_on_the_way_comes_back_to_nobody(connect: Connect, proxy: Proxy, kind: str) -> None:
    """What was stuck arrives when its caller has long been told that nobody knows."""
    locks, rival = connect(through(proxy)), connect()
    lock: Any = locks.lock("k") if kind == "lock" else locks.semaphore("k", limit=1)
    lock.acquire().release()
    proxy.requests.set("stall")
    thread, outcome = background(lambda: lock.acquire(wait=0.3))
    thread.join(20.0)
    assert isinstance(outcome[0], EngineUnavailable)
    assert outcome[0].outcome == "unknown"
    proxy.heal()
    theirs: Any = rival.lock("k") if kind == "lock" else rival.semaphore("k", limit=1)
    with theirs as grant:
        assert [holder.token for holder in rival.inspect("k", kind=kind).holders] == [grant.token]
        # The late withdrawal has been made when the client does something else on this name.
        again = lock.try_acquire()
        assert again is None
        assert rival.inspect("k", kind=kind).waiters == ()


def test_a_watch_goes_on_after_its_stream_was_cut(connect: Connect, proxy: Proxy) -> None:
    locks, rival = connect(through(proxy)), connect()
    held = rival.lock("k").acquire()
    thread, outcome = background(lambda: locks.lock("k").acquire(wait=30.0))
    wait_until(lambda: len(rival.inspect("k").waiters) == 1, 10.0, "standing in line")
    proxy.cut()
    held.release()
    thread.join(20.0)

    assert outcome[0].valid
    outcome[0].release()


def test_what_is_held_and_who_waits_outlive_a_restart_of_the_server(server: EtcdServer, connect: Connect) -> None:
    locks, rival = connect(), connect()
    held = locks.lock("k").acquire()
    thread, outcome = background(lambda: rival.lock("k").acquire(wait=60.0))
    wait_until(lambda: len(locks.inspect("k").waiters) == 1, 10.0, "standing in line")
    server.kill()
    server.start()
    wait_until(lambda: not held.in_danger, 20.0, "the next heartbeat")
    held.check()
    held.release()
    thread.join(30.0)

    assert outcome[0].token > held.token
    outcome[0].release()


def test_a_server_that_is_not_there_is_told_in_time(connect: Connect) -> None:
    nobody: holdfast.Client = holdfast.connect("etcd://127.0.0.1:1")
    with nobody, pytest.raises(EngineUnavailable) as unavailable:
        nobody.lock("k").acquire(wait=0.2)
    assert unavailable.value.outcome == "not done"
