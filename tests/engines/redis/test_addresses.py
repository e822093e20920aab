"""Where a client goes: sentinels that disagree, nodes that left their cluster, names that have to be resolved."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis as redis_py

import holdfast
from holdfast import InvalidRequest, aio
from holdfast.verify.servers.process import free_port
from holdfast.verify.servers.redis import RedisServer
from holdfast.verify.servers.redis_deployments import RedisCluster, Sentinel
from tests.conformance.apis import Api
from tests.conformance.stage import Stage, eventually
from tests.engines.redis.conftest import SUBJECT


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster() as cluster:
        yield cluster


async def test_a_sentinel_that_names_a_dead_primary_is_not_believed_alone(api: Api, server: RedisServer) -> None:
    with RedisServer() as dead, Sentinel(dead, 60_000) as stale, Sentinel(server, 60_000) as right:
        dead.kill()
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in (stale, right))
        stage = Stage(SUBJECT, api, f"redis+sentinel://{hosts}/holdfast")
        locks = await stage.client()
        held = await locks.lock("k").acquire(wait=5.0)
        with redis_py.Redis(port=server.port) as operator:
            assert operator.exists("holdfast:1:{holdfast}:lock:lock:k")
        await held.release()
        await stage.end()


async def test_a_node_that_is_in_no_cluster_is_passed_over(api: Api, cluster: RedisCluster) -> None:
    with RedisServer("--cluster-enabled", "yes", "--cluster-port", str(free_port())) as alone:
        hosts = ",".join(f"127.0.0.1:{port}" for port in (alone.port, cluster.nodes[0].port))
        stage = Stage(SUBJECT, api, f"redis+cluster://{hosts}")
        locks = await stage.client()
        await (await locks.lock("k").acquire(wait=5.0)).release()
        await stage.end()


async def test_nodes_that_do_not_know_their_own_name_are_found(api: Api, cluster: RedisCluster) -> None:
    for node in cluster.nodes:
        cluster.tell(node, "CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint")
    try:
        for node in cluster.nodes:
            stage = Stage(SUBJECT, api, f"redis+cluster://127.0.0.1:{node.port}")
            locks = await stage.client()
            await (await locks.lock("k").acquire(wait=5.0)).release()
            await stage.end()
    finally:
        for node in cluster.nodes:
            cluster.tell(node, "CONFIG", "SET", "cluster-preferred-endpoint-type", "ip")


async def test_a_subscription_goes_where_the_requests_go(api: Api, cluster: RedisCluster) -> None:
    """A node that leaves the cluster keeps its connections, and hears of nothing that is published there."""
    stage = Stage(SUBJECT, api, cluster.url)
    locks = await stage.client(ttl=1.0)
    await (await locks.lock("k").acquire(wait=5.0)).release()
    core: Any = locks.target._core
    bell, route = core.keeper.verbs.bell, core.engine.route
    for node in cluster.nodes:
        # What a request to a node without the slot leads to, and one to the node with it leads away from.
        route.current = type(route.current)("127.0.0.1", node.port)
        here = route.current
        await eventually(lambda here=here: bell._connection is not None and bell._connection.address == here)  # type: ignore[misc]
    await stage.end()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_busy_executor_keeps_no_client_from_connecting(server: RedisServer, host: str) -> None:
    """The application may fill it with work of its own."""
    free = threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    async with aio.connect(f"redis://{host}:{server.port}/0") as locks:
        held = await locks.lock("held").acquire()
        busy = [loop.run_in_executor(None, free.wait) for _ in range(2)]
        try:
            with redis_py.Redis(port=server.port) as operator:
                operator.client_kill_filter(_type="normal", skipme=True)
            await (await locks.lock("k").acquire(wait=1.0)).release()
            await held.release()
            assert not any(work.done() for work in busy)
        finally:
            free.set()
            await asyncio.gather(*busy)


@pytest.mark.parametrize(
    "hosts",
    ["h1,h1:6379,h2,h3", "h1,H1,h2,h3", "[::1]:7001,::1:7001,h2,h3"],
)
def test_a_node_that_is_named_twice_is_refused(hosts: str) -> None:
    with pytest.raises(InvalidRequest, match="twice"):
        holdfast.connect(f"redlock://{hosts}")


async def test_a_node_under_two_names_is_refused(api: Api, server: RedisServer) -> None:
    with RedisServer() as other:
        url = f"redlock://localhost:{server.port},127.0.0.1:{server.port},127.0.0.1:{other.port}"
        stage = Stage(SUBJECT, api, url)
        locks = await stage.client()
        with pytest.raises(InvalidRequest, match="are one server"):
            await locks.lock("k").acquire(wait=5.0)
        await stage.end()
