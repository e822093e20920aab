"""Sentinels, a cluster, TLS, passwords, and clients of redis-py: the same locks everywhere."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
import redis.asyncio

import holdfast
from holdfast import EngineUnavailable, InvalidRequest
from holdfast.engines.resp import blocking
from holdfast.verify.servers.process import wait_until
from holdfast.verify.servers.redis import RedisServer
from holdfast.verify.servers.redis_deployments import RedisCluster, TlsRedis, WatchedRedis
from tests.conformance.apis import Api, Front
from tests.conformance.stage import Stage, eventually, soon
from tests.engines.redis.conftest import SUBJECT

PREFIX = "holdfast:1:{holdfast}:"


@pytest.fixture
def watched() -> Iterator[WatchedRedis]:
    with WatchedRedis() as watched:
        yield watched


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster() as cluster:
        yield cluster


async def test_a_failover_is_followed_and_what_it_lost_is_reported_lost(api: Api, watched: WatchedRedis) -> None:
    stage = Stage(SUBJECT, api, watched.url)
    locks = await stage.client(ttl=20.0)
    kept, lost = [await locks.lock(name).acquire() for name in ("kept", "lost")]
    # The replicas have not heard of one of the two when the primary dies.
    for replica in watched.replicas:
        with redis.Redis(port=replica.port) as client:
            wait_until(lambda client=client: client.exists(f"{PREFIX}lock:lock:lost") == 1, 10, "replication")  # type: ignore[misc]
            client.config_set("replica-read-only", "no")
            client.delete(f"{PREFIX}lock:lock:lost")
    watched.primary.kill()
    try:
        after: Front | None = None

        async def promoted() -> bool:
            nonlocal after
            try:
                after = await locks.lock("after").acquire(wait=1.0)
            except EngineUnavailable:
                return False
            return True

        await eventually(promoted, 40.0)
        assert after is not None
        await eventually(lost.lost.is_set, 20.0)
        kept.check()
        assert after.token > max(kept.token, lost.token)
    finally:
        await stage.end()
        watched.primary.start()


async def test_a_replica_is_not_taken_for_the_primary(api: Api, watched: WatchedRedis) -> None:
    """Sentinels may be behind: the connection looks for itself."""
    replica = watched.replicas[0]
    with redis.Redis(port=watched.sentinels[0].port):
        stage = Stage(SUBJECT, api, f"redis://127.0.0.1:{replica.port}/0")
    locks = await stage.client()
    with pytest.raises(EngineUnavailable) as error:
        await locks.lock("k").acquire(wait=0.5)
    assert error.value.outcome == "not done"
    await stage.end()


async def test_a_cluster_sends_clients_to_the_node_that_has_the_namespace(api: Api, cluster: RedisCluster) -> None:
    for namespace in ("a", "b", "c", "d", "e", "f"):
        stage = Stage(SUBJECT, api, cluster.url)
        locks, rival = [await stage.client(namespace=namespace) for _ in range(2)]
        held = await locks.lock("k").acquire()
        waiting = await stage.queued(locks, "k", rival.lock("k").acquire())
        await held.release()
        assert (await waiting).token > held.token
        await stage.end()


async def test_a_slot_that_moves_is_followed(api: Api, cluster: RedisCluster) -> None:
    stage = Stage(SUBJECT, api, cluster.url)
    locks = await stage.client(namespace="moving", ttl=20.0)
    held = await locks.lock("k").acquire()
    slot = cluster.tell(cluster.nodes[0], "CLUSTER", "KEYSLOT", "{moving}")
    source = next(node for node in cluster.nodes if owns(cluster, node, slot))
    target = next(node for node in cluster.nodes if node is not source)
    moving = Move(cluster, source, target, slot)
    moving.begin()
    moving.carry(lambda key: True)
    moving.end()

    await held.renew()
    other = await locks.lock("other").acquire()
    assert other.token > held.token
    await held.release()
    await stage.end()


async def test_while_a_slot_is_moving_nobody_is_answered_and_nothing_is_lost(api: Api, cluster: RedisCluster) -> None:
    stage = Stage(SUBJECT, api, cluster.url)
    locks, rival = [await stage.client(namespace="split", ttl=60.0) for _ in range(2)]
    held = await locks.lock("k").acquire()
    free = await rival.lock("other").acquire()
    moving = move_of(cluster, "{split}")

    # Everything but the held lock: whoever followed the cluster there would find it free.
    moving.begin()
    moving.carry(lambda key: "lock:lock:k" not in key)
    with pytest.raises(EngineUnavailable) as refusal:
        await rival.lock("k").acquire(wait=0.5)
    # Not for ever: a test that fails before the lock is free would never end.
    waiting = stage.begin(stage.another(rival).lock("k").acquire(wait=60.0))
    moving.carry(lambda key: True)
    moving.end()

    assert refusal.value.outcome == "not done"
    await held.renew()
    await free.release()
    await eventually(lambda: queues(locks))
    await held.release()
    assert (await soon(waiting)).token > held.token
    await stage.end()


def test_what_a_moving_slot_kept_for_too_long_is_not_sent_again(
    cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer would come in time, and nobody could say what became of it."""
    with holdfast.connect(cluster.url, namespace="late", ttl=60.0) as locks, locks.lock("other"):
        moving = move_of(cluster, "{late}")
        moving.begin()
        moving.carry(lambda key: "lock:lock:" not in key)
        # A busy machine wakes nobody in time.
        monkeypatch.setattr(blocking, "time", SimpleNamespace(sleep=lambda seconds: time.sleep(seconds + 5.0)))
        with pytest.raises(EngineUnavailable) as refusal:
            locks.lock("k").acquire(wait=0.5)
        monkeypatch.undo()
        moving.carry(lambda key: True)
        moving.end()

    assert refusal.value.outcome == "not done"


async def queues(locks: Front) -> bool:
    """Whether somebody waits for the lock."""
    return bool((await locks.inspect("k")).waiters)


def owns(cluster: RedisCluster, node: RedisServer, slot: int) -> bool:
    me = cluster.tell(node, "CLUSTER", "MYID")
    return any(first <= slot <= last and nodes[0][2] == me for first, last, *nodes in slots(cluster, node))


def slots(cluster: RedisCluster, node: RedisServer) -> list[list[Any]]:
    with redis.Redis(port=node.port, decode_responses=True) as client:
        client.response_callbacks.pop("CLUSTER SLOTS", None)
        found: list[list[Any]] = client.execute_command("CLUSTER SLOTS")
        return found


class Move:
    """One slot on its way to another node, as an operator's resharding moves it."""

    def __init__(self, cluster: RedisCluster, source: RedisServer, target: RedisServer, slot: int) -> None:
        self.cluster, self.source, self.target, self.slot = cluster, source, target, str(slot)
        self._ids = {node: cluster.tell(node, "CLUSTER", "MYID") for node in (source, target)}

    def begin(self) -> None:
        self.cluster.tell(self.target, "CLUSTER", "SETSLOT", self.slot, "IMPORTING", self._ids[self.source])
        self.cluster.tell(self.source, "CLUSTER", "SETSLOT", self.slot, "MIGRATING", self._ids[self.target])

    def carry(self, wanted: Callable[[str], bool]) -> None:
        """Move these keys."""
        keys = self.cluster.tell(self.source, "CLUSTER", "GETKEYSINSLOT", self.slot, "1000")
        with redis.Redis(port=self.source.port) as client:
            client.execute_command(
                "MIGRATE", "127.0.0.1", self.target.port, "", 0, 5000, "KEYS", *filter(wanted, keys)
            )  # fmt: skip

    def end(self) -> None:
        for node in (self.target, self.source):
            self.cluster.tell(node, "CLUSTER", "SETSLOT", self.slot, "NODE", self._ids[self.target])


def move_of(cluster: RedisCluster, tag: str) -> Move:
    """Of the slot of a namespace to some other node."""
    slot = cluster.tell(cluster.nodes[0], "CLUSTER", "KEYSLOT", tag)
    source = next(node for node in cluster.nodes if owns(cluster, node, slot))
    return Move(cluster, source, next(node for node in cluster.nodes if node is not source), slot)


async def test_locks_go_through_tls(api: Api) -> None:
    with TlsRedis() as server:
        stage = Stage(SUBJECT, api, server.url())
        locks, rival = await stage.client(), await stage.client()
        held = await locks.lock("k").acquire()
        waiting = await stage.queued(locks, "k", rival.lock("k").acquire())
        await held.release()
        assert (await waiting).valid
        await stage.end()


async def test_a_certificate_that_nobody_vouches_for_is_refused(api: Api) -> None:
    with TlsRedis() as server:
        stage = Stage(SUBJECT, api, f"rediss://127.0.0.1:{server.port}/0")
        locks = await stage.client()
        with pytest.raises(EngineUnavailable, match="certificate"):
            await locks.lock("k").acquire(wait=0.5)
        await stage.end()


async def test_a_password_is_needed_and_never_shown(api: Api) -> None:
    with RedisServer() as server, redis.Redis(port=server.port) as operator:
        operator.config_set("requirepass", "secret")
        for password, works in (("secret", True), ("wrong", False)):
            stage = Stage(SUBJECT, api, f"redis://:{password}@127.0.0.1:{server.port}/0")
            locks = await stage.client()
            if works:
                assert await locks.lock("k").try_acquire() is not None
            else:
                with pytest.raises(EngineUnavailable) as error:
                    await locks.lock("k").acquire(wait=0.5)
                assert password not in str(error.value)
            assert password not in repr(locks.target)
            await stage.end()


async def test_an_existing_client_lends_its_settings(api: Api, url: str, shared_server: RedisServer) -> None:
    database = int(url.rpartition("/")[2])
    with redis.Redis(port=shared_server.port, db=database) as blocking:
        stage = Stage(SUBJECT, api, url)
        held = await (await stage.client()).lock("k").acquire()
        tasks = redis.asyncio.Redis(port=shared_server.port, db=database)
        for lender in (blocking, tasks):
            borrowed = Stage(SUBJECT, api, lender)  # type: ignore[arg-type]
            locks = await borrowed.client()
            assert [info.name for info in await locks.list()] == ["k"]
            assert await locks.lock("k").try_acquire() is None
            await borrowed.end()
        # Nothing of it was used up: it works as before.
        assert blocking.ping()
        await tasks.aclose()
        assert held.valid
        await stage.end()


def test_an_existing_cluster_client_lends_its_settings(cluster: RedisCluster) -> None:
    with redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port) as lender, holdfast.connect(lender) as locks:
        with locks.lock("k") as held:
            assert held.valid


def test_an_existing_sentinel_client_lends_its_settings(watched: WatchedRedis) -> None:
    manager = redis.Sentinel([("127.0.0.1", sentinel.port) for sentinel in watched.sentinels])  # type: ignore[no-untyped-call]
    lender = manager.master_for("holdfast")  # type: ignore[no-untyped-call]
    with holdfast.connect(lender) as locks, locks.lock("k") as held:
        assert held.valid
    lender.close()
    for sentinel in manager.sentinels:
        sentinel.close()


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis://h/notanumber",
        "redis://h:0/0",
        "redis://h1,h2/0",
        "redis+sentinel://s1,s2",
        "redis+cluster://h1/3",
        "redis://h/0?sentinel=1",
        "rediss://h/0?ca=/does/not/exist",
    ],
)
def test_an_address_that_makes_no_sense_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(InvalidRequest):
        holdfast.connect(url)


def test_a_child_after_a_fork_leaves_its_parents_connections_alone(url: str) -> None:
    with holdfast.connect(url) as locks:
        held = locks.lock("k").acquire()
        child = os.fork()
        if not child:
            code = 1
            try:
                # The child is somebody else: it does not hold the lock, and speaks over connections of its own.
                code = 0 if not held.valid and locks.lock("k").try_acquire() is None else 2
                with locks.lock("other"):
                    code = code or 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        held.renew()
        held.check()
        held.release()


def take_from(locks: holdfast.Client, server: RedisServer) -> None:
    """Take a lock from a server that stands still, and let it go on when that has failed."""
    try:
        locks.lock("k").acquire()
    finally:
        server.resume()


@pytest.mark.timeout(method="thread")  # it uses the alarm itself
def test_an_interrupt_in_the_middle_leaves_no_lock_and_no_answer_for_somebody_else(
    url: str, shared_server: RedisServer
) -> None:
    with holdfast.connect(url) as locks:
        locks.lock("warm").acquire().release()
        shared_server.pause()

        def interrupt(number: int, frame: object) -> None:
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            with pytest.raises(KeyboardInterrupt):
                take_from(locks, shared_server)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        with holdfast.connect(url) as rival:
            wait_until(lambda: not rival.inspect("k").holders, 10, "the lock being free")
            assert rival.inspect("k").waiters == ()
        with locks.lock("k") as held:
            held.check()
