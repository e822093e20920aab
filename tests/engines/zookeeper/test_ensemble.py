"""Three servers: the leader dies or stands still, or a minority is cut off with a client in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager

import pytest
from kazoo.client import KazooClient

import holdfast
from holdfast import EngineUnavailable, HoldfastError, LockLost
from tests.engines.zookeeper.patience import eventually
from tests.servers.zookeeper import Ensemble

TTL = 12.0


@contextmanager
def leader_killed(three: Ensemble) -> Iterator[None]:
    leader = three.leader
    leader.kill()
    try:
        yield
    finally:
        leader.start()


@contextmanager
def leader_stopped(three: Ensemble) -> Iterator[None]:
    leader = three.leader
    leader.pause()
    try:
        yield
    finally:
        leader.resume()
        eventually(leader.is_ready, "the stopped one following")


Fault = Callable[[Ensemble], AbstractContextManager[None]]
faults = pytest.mark.parametrize("fault", [leader_killed, leader_stopped])


@faults
def test_a_holder_keeps_its_lock_and_the_line_its_order_when_the_leader_is_gone(
    three: Ensemble, chroot: str, fault: Fault
) -> None:
    order: list[int] = []

    def take_a_turn(client: holdfast.Client, number: int, queued: threading.Event) -> None:
        with client.lock("k", on_wait=lambda place: queued.set()):
            order.append(number)

    clients = [holdfast.connect(three.url + chroot, ttl=TTL) for _ in range(4)]
    held = clients[0].lock("k").acquire()
    with ThreadPoolExecutor(3) as threads:
        turns = []
        for number, client in enumerate(clients[1:]):
            queued = threading.Event()
            turns.append(threads.submit(take_a_turn, client, number, queued))
            assert queued.wait(20.0)
        with fault(three):
            eventually(lambda: _renews(held), "the new leader hearing the holder")
            assert not order
            held.release()
            for turn in turns:
                turn.result(40.0)
    assert order == [0, 1, 2]
    for client in clients:
        client.close()


def _renews(grant: holdfast.Grant) -> bool:
    try:
        grant.renew()
    except EngineUnavailable:
        return False
    grant.check()
    return not grant.in_danger


@faults
def test_nobody_holds_twice_while_the_leader_changes(three: Ensemble, chroot: str, fault: Fault) -> None:
    tokens: list[int] = []
    inside: list[int] = []
    stop = threading.Event()

    def work(client: holdfast.Client) -> None:
        while not stop.is_set():
            try:
                with client.lock("k", wait=20.0) as grant:
                    inside.append(grant.token)
                    assert len(inside) == 1 or not grant.valid
                    tokens.append(grant.token)
                    inside.pop()
            except (EngineUnavailable, LockLost):
                continue

    clients = [holdfast.connect(three.url + chroot, ttl=TTL) for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        working = [threads.submit(work, client) for client in clients]
        try:
            eventually(lambda: len(tokens) > 20)
            with fault(three):
                before = len(tokens)
                eventually(lambda: len(tokens) > before + 20, "going on without the leader")
        finally:
            stop.set()
        for one in working:
            one.result(40.0)
    assert tokens == sorted(set(tokens))
    for client in clients:
        client.close()


def test_a_minority_grants_nothing_and_its_holder_stops_before_the_majority_goes_on(
    three_apart: Ensemble, chroot: str
) -> None:
    minority = three_apart.followers[0]
    majority = [server for server in three_apart.servers if server is not minority]
    inside = holdfast.connect(minority.url + chroot, ttl=3.0)
    outside = holdfast.connect("zookeeper://" + ",".join(each.address for each in majority) + chroot, ttl=3.0)
    held = inside.lock("k").acquire()
    with three_apart.cut_off(minority):
        # Nothing is asked of the minority meanwhile: a write that hangs would hold up every read behind it.
        theirs = outside.lock("k").acquire(wait=30.0)
        was_valid = held.valid

        assert not was_valid
        assert theirs.token > held.token
        with pytest.raises(LockLost):
            held.check()
        with pytest.raises(HoldfastError):
            inside.lock("other").acquire(wait=0.2)
    theirs.release()
    again = inside.lock("k").acquire(wait=30.0)
    assert again.token > theirs.token
    inside.close()
    outside.close()


def test_a_server_that_lost_its_leader_answers_reads_for_a_while(three_apart: Ensemble, chroot: str) -> None:
    """The control: this is why a heartbeat is a write. A read would go on moving the deadline of a dead session."""
    minority = three_apart.followers[0]
    plain = KazooClient(minority.address)
    plain.start()
    plain.ensure_path(chroot)
    with three_apart.cut_off(minority):
        found = plain.get_async(chroot)
        assert found.wait(20.0)
        assert found.successful()
    plain.stop()
    plain.close()


def test_what_was_written_is_seen_by_way_of_a_server_that_lags(three_apart: Ensemble, chroot: str) -> None:
    behind = three_apart.followers[0]
    with holdfast.connect(three_apart.leader.url + chroot) as writer, holdfast.connect(behind.url + chroot) as reader:
        first = writer.cell("c").set("first")
        assert reader.cell("c").get() == ("first", first)
        reader.lock("warm").acquire().release()
        with three_apart.lagging(behind, 0.2):
            second = writer.cell("c").set("second")
            assert reader.cell("c").get() == ("second", second)
            third = writer.cell("c").set("third")
            assert reader.cell("c").set("fourth", version=third) > third
            held = writer.lock("k").acquire()
            assert [holder.token for holder in reader.inspect("k").holders] == [held.token]
            adopted = reader.adopt(held.hand_over())
            assert adopted.token > held.token
            adopted.release()
            eventually(lambda: not held.valid, "the sender knowing")
