"""Bugs of the recipe inside etcd that this one must not have. Each has the peer beside it, which does have it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
import pytest

import holdfast
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.etcd import EtcdServer
from tests.engines.etcd.conftest import Connect
from tests.engines.etcd.peer import V3Lock
from tests.servers.process import wait_until


@pytest.fixture
def peer(server: EtcdServer) -> Iterator[V3Lock]:
    peer = V3Lock(server)
    yield peer
    peer.close()


def test_the_peer_before_3_5_grants_to_a_waiter_whose_lease_ran_out_in_the_queue(
    server: EtcdServer, peer: V3Lock
) -> None:
    """The control: etcd 3.4's own recipe says granted, and no key stands for it. Later ones refuse."""
    held = peer.take("control", peer.lease(60), 5.0)
    waiting = peer.taking("control", peer.lease(1), 30.0)
    behind = peer.taking("control", peer.lease(60), 30.0)
    # The waiter's lease is over when the one behind it has nobody but the holder before it.
    prefix_gone = threading.Event()
    wait_until(lambda: prefix_gone.wait(0.1) or _keys(peer, b"control/") == 2, 20.0, "the lease running out")
    peer.give(held)

    if server.version < (3, 5):
        assert not peer.exists(waiting.result(20.0).key)
    else:
        with pytest.raises(grpc.RpcError, match="session is expired"):
            waiting.result(20.0)
    assert behind.result(20.0)


def _keys(peer: V3Lock, prefix: bytes) -> int:
    from holdfast.engines.etcd.keys import end_of
    from holdfast.engines.etcd.messages import message
    from holdfast.engines.etcd.wire import serialize

    read = peer.channel.unary_unary("/etcdserverpb.KV/Range", serialize, message("RangeResponse").FromString)
    count: int = read(message("RangeRequest")(key=prefix, range_end=end_of(prefix)), timeout=5.0).count
    return count


def test_a_waiter_whose_session_ran_out_in_line_is_granted_only_under_a_new_one(connect: Connect, proxy: Proxy) -> None:
    rival = connect()
    held = rival.lock("k").acquire()
    cut_off = connect(f"etcd://127.0.0.1:{proxy.port}", ttl=1.0)
    granted: list[holdfast.Grant] = []
    waiter = threading.Thread(target=lambda: granted.append(cut_off.lock("k").acquire()))
    waiter.start()
    wait_until(lambda: len(rival.inspect("k").waiters) == 1, 10.0, "the waiter standing in line")
    first = rival.inspect("k").waiters[0].claim
    proxy.requests.set("stall")
    wait_until(lambda: rival.inspect("k").waiters == (), 20.0, "its session running out")
    held.release()
    assert granted == []
    proxy.heal()
    waiter.join(20.0)

    assert granted[0].valid
    holder = rival.inspect("k").holders[0]
    assert holder.claim != first
    assert holder.token == granted[0].token > held.token
    granted[0].release()


def test_the_peer_lets_two_of_one_lease_hold_at_once(peer: V3Lock) -> None:
    """The control: the key is the lease's, so the second one finds that it has it already."""
    lease = peer.lease(60)
    first = peer.take("twice", lease, 5.0)
    second = peer.take("twice", lease, 5.0)

    assert first == second
    peer.give(first)


def test_two_owners_of_one_session_never_hold_at_once(connect: Connect) -> None:
    locks = connect()
    held = locks.lock("k").acquire()
    other: list[holdfast.Grant | None] = []
    thread = threading.Thread(target=lambda: other.append(locks.lock("k").try_acquire()))
    thread.start()
    thread.join(10.0)

    assert other == [None]
    held.release()
