"""RedisFence on a real Redis, single and cluster, blocking and asyncio."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from holdfast.errors import EngineUnavailable, InvalidRequest, StaleToken
from holdfast.fence import RedisFence
from holdfast.fence.redis_keys import fence_key, hash_slot
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.redis import RedisServer

LARGEST = 2**53 - 1


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as made:
        yield made


@pytest.fixture
def fence(client: redis.Redis) -> RedisFence:
    return RedisFence(client)


def test_a_stale_token_writes_nothing_and_says_what_was_seen(fence: RedisFence, client: Any, name: str) -> None:
    assert fence.set(name, "of B", 18, resource=name) == "OK"

    with pytest.raises(StaleToken) as stale:
        fence.set(name, "of A", 17, resource=name)

    assert (stale.value.presented, stale.value.highest, stale.value.resource) == (17, 18, name)
    assert client.get(name) == "of B"


def test_tokens_are_exact_to_the_last(fence: RedisFence, client: Any, name: str) -> None:
    fence.set(name, "1", LARGEST - 1, resource=name)
    fence.set(name, "2", LARGEST, resource=name)

    with pytest.raises(StaleToken) as stale:
        fence.set(name, "3", LARGEST - 1, resource=name)

    assert stale.value.highest == LARGEST
    assert client.get(fence_key(name)) == str(LARGEST)


def test_an_equal_token_passes_and_once_refuses_it(fence: RedisFence, client: Any, name: str) -> None:
    fence.set(name, "1", 17, resource=name, once=True)
    fence.set(name, "2", 17, resource=name)

    with pytest.raises(StaleToken):
        fence.set(name, "3", 17, resource=name, once=True)

    assert client.get(name) == "2"


@pytest.fixture
def proxied(redis_server: RedisServer, request: pytest.FixtureRequest) -> Iterator[tuple[RedisFence, Proxy]]:
    """A fence behind a proxy. Its client repeats by itself what was not answered, as newer ones do, or is told not to.

    Older ones, such as redis-py 5, do not repeat unless they are told to.
    """
    retry = Retry(NoBackoff(), getattr(request, "param", 3))
    with Proxy("127.0.0.1", redis_server.port) as proxy:
        with redis.Redis(port=proxy.port, retry=retry, retry_on_error=[redis.ConnectionError]) as client:
            client.ping()
            yield RedisFence(client), proxy


def test_a_command_that_fails_does_not_use_up_what_may_be_done_once(fence: RedisFence, client: Any, name: str) -> None:
    client.set(name, "no list")
    fence.set(f"{name}/other", "1", 16, resource=name)
    for _ in range(2):
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            fence.execute("LPUSH", [name], ["x"], 17, resource=name, once=True)
    # The token has been seen all the same.
    with pytest.raises(StaleToken):
        fence.set(f"{name}/other", "2", 16, resource=name)
    client.delete(name)
    assert fence.execute("LPUSH", [name], ["x"], 17, resource=name, once=True) == 1

    with pytest.raises(StaleToken):
        fence.execute("LPUSH", [name], ["x"], 17, resource=name, once=True)
    assert client.llen(name) == 1


def test_a_plain_write_uses_up_what_a_failed_one_has_left(fence: RedisFence, client: Any, name: str) -> None:
    client.set(name, "no list")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        fence.execute("LPUSH", [name], ["x"], 17, resource=name, once=True)
    fence.set(name, "plain", 17, resource=name)

    with pytest.raises(StaleToken):
        fence.set(name, "once", 17, resource=name, once=True)


@pytest.mark.parametrize("proxied", [0, 3], indirect=True, ids=["not repeated", "repeated"])
def test_a_write_once_whose_answer_was_lost_is_unknown_and_not_stale(
    proxied: tuple[RedisFence, Proxy], client: Any, name: str
) -> None:
    fence, proxy = proxied
    fence.check(16, resource=name)
    proxy.replies.set("cut")

    with pytest.raises(EngineUnavailable) as lost:
        fence.execute("INCR", [name], [], 17, resource=name, once=True)

    assert lost.value.outcome == "unknown"
    assert client.get(name) == "1"
    with pytest.raises(StaleToken):
        fence.execute("INCR", [name], [], 17, resource=name, once=True)
    fence.set(name, "2", 17, resource=name)
    fence.set(name, "3", 18, resource=name, once=True)


async def test_the_same_for_an_asyncio_client(redis_server: RedisServer, client: Any, name: str) -> None:
    retry = redis.asyncio.retry.Retry(NoBackoff(), 0)
    with Proxy("127.0.0.1", redis_server.port) as proxy:
        async with redis.asyncio.Redis(port=proxy.port, retry=retry) as own:
            fence = RedisFence(own)
            await fence.check(16, resource=name)
            proxy.replies.set("cut")

            with pytest.raises(EngineUnavailable) as lost:
                await fence.execute("INCR", [name], [], 17, resource=name, once=True)

    assert lost.value.outcome == "unknown"
    assert client.get(name) == "1"


def test_a_check_once_that_the_client_repeats_passes(proxied: tuple[RedisFence, Proxy], name: str) -> None:
    fence, proxy = proxied
    fence.check(16, resource=name)
    proxy.replies.set("cut")

    fence.check(17, resource=name, once=True)

    with pytest.raises(StaleToken) as stale:
        fence.check(17, resource=name, once=True)
    assert stale.value.highest == 17


def test_a_reader_makes_nobody_stale_and_is_refused_after_a_later_writer(fence: RedisFence, name: str) -> None:
    fence.set(name, "1", "13;shared", resource=name)
    fence.set(name, "2", "12;shared", resource=name)
    fence.set(name, "3", 14, resource=name)

    with pytest.raises(StaleToken):
        fence.set(name, "4", "13;shared", resource=name)


def test_every_kind_of_write_is_fenced(fence: RedisFence, client: Any, name: str) -> None:
    hashed = name + ":h"
    assert fence.hset(hashed, {"a": 1, "b": 2}, 17, resource=name) == 2
    assert fence.hdel(hashed, ["a"], 17, resource=name) == 1
    assert fence.execute("INCRBY", [name], [5], 17, resource=name) == 5
    assert fence.execute("MSET", [name], [6], 17, resource=name) == "OK"
    assert fence.execute("SINTERSTORE", [name + ":s", name + ":t"], [], 17, resource=name) == 0
    assert fence.delete(name, 18, resource=name) == 1

    writes: list[Callable[[], object]] = [
        lambda: fence.hset(hashed, {"b": 3}, 17, resource=name),
        lambda: fence.hdel(hashed, ["b"], 17, resource=name),
        lambda: fence.execute("INCRBY", [name], [5], 17, resource=name),
        lambda: fence.delete(hashed, 17, resource=name),
        lambda: fence.check(17, resource=name),
    ]
    for write in writes:
        with pytest.raises(StaleToken):
            write()

    assert client.hgetall(hashed) == {"b": "2"}


def test_a_value_may_live_for_a_while_and_its_fence_stays(fence: RedisFence, client: Any, name: str) -> None:
    fence.set(name, "v", 17, ttl=0.0004, resource=name)
    fence.set(name, "v", 17, ttl=50, resource=name)

    assert 0 < client.pttl(name) <= 50_000
    assert client.pttl(fence_key(name)) == -1


@pytest.mark.parametrize("ttl", [0, -1.0, float("nan"), float("inf")])
def test_a_value_that_could_not_live_is_not_written(fence: RedisFence, client: Any, name: str, ttl: float) -> None:
    client.set(name, "before")

    with pytest.raises(InvalidRequest, match="more than 0 seconds"):
        fence.set(name, "1", 17, resource=name, ttl=ttl)

    assert client.get(name) == "before"


def test_a_script_of_ones_own_sees_only_its_own_keys_and_arguments(fence: RedisFence, client: Any, name: str) -> None:
    take = fence.script("return {#KEYS, #ARGV, KEYS[1], ARGV[1], redis.call('DECRBY', KEYS[1], ARGV[1])} -- done")

    assert take(18, keys=[name], args=[2], resource=name) == [1, 1, name, "2", -2]
    with pytest.raises(StaleToken):
        take(17, keys=[name], args=[2], resource=name)
    assert client.get(name) == "-2"


def test_an_error_of_the_command_itself_comes_out(fence: RedisFence, client: Any, name: str) -> None:
    client.lpush(name, "x")

    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        fence.execute("INCRBY", [name], [1], 17, resource=name)


def test_it_goes_on_after_the_server_forgot_its_scripts(fence: RedisFence, client: Any, name: str) -> None:
    fence.set(name, "1", 18, resource=name)
    client.script_flush()

    with pytest.raises(StaleToken):
        fence.set(name, "2", 17, resource=name)
    client.script_flush()
    fence.set(name, "3", 18, resource=name)


def test_of_many_first_uses_at_once_the_highest_stays(redis_server: RedisServer, name: str) -> None:
    start, refused = threading.Barrier(16), []

    def write(token: int) -> None:
        with redis.Redis.from_url(redis_server.url) as own:
            start.wait()
            try:
                RedisFence(own).set(name, str(token), token, resource=name)
            except StaleToken:
                refused.append(token)

    threads = [threading.Thread(target=write, args=(token,)) for token in range(1, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with redis.Redis.from_url(redis_server.url) as own:
        assert own.get(name) == b"16"
    assert 16 not in refused


@pytest.mark.parametrize("hostile", ["'\"\\", "a}b", "{}", "{a}b", "}{", "a{b", "日本語", "x" * 512, "%s{0}", "}"])
def test_the_fence_of_a_hostile_name_lies_in_the_slot_of_that_name(redis_cluster: RedisServer, hostile: str) -> None:
    with RedisCluster.from_url(redis_cluster.url) as client:
        assert client.cluster_keyslot(hostile) == hash_slot(hostile)
        assert client.cluster_keyslot(fence_key(hostile)) == hash_slot(hostile)
        RedisFence(client).set(hostile, "v", 17, resource=hostile, once=True)


def test_no_two_names_share_a_fence() -> None:
    names = ["a", "{a}", "{a}b", "{b}a", "a}b", "a{b", "gpu", "gpu//0", "gpu//1"]

    assert len({fence_key(name) for name in names}) == len(names)


def test_a_pipeline_is_refused(client: Any) -> None:
    with pytest.raises(InvalidRequest, match="pipeline"):
        RedisFence(client.pipeline())


async def test_an_asyncio_client_is_awaited(redis_server: RedisServer, name: str) -> None:
    async with redis.asyncio.Redis.from_url(redis_server.url, decode_responses=True) as client:
        fence = RedisFence(client)
        await client.script_flush()
        assert await fence.set(name, "of B", 18, resource=name) == "OK"
        with pytest.raises(StaleToken):
            await fence.set(name, "of A", 17, resource=name)
        assert await client.get(name) == "of B"


def test_in_a_cluster_keys_with_the_resource_as_hash_tag_are_fenced(redis_cluster: RedisServer, name: str) -> None:
    with RedisCluster.from_url(redis_cluster.url, decode_responses=True) as client:
        fence = RedisFence(client)
        fence.set(name, "of B", 18, resource=name)
        fence.hset(f"{{{name}}}:fields", {"a": 1}, 18, resource=name)
        swap = fence.script("return redis.call('GETSET', KEYS[1], ARGV[1])")
        assert swap(18, keys=[f"{{{name}}}:x"], args=["y"], resource=name) is None

        with pytest.raises(StaleToken):
            fence.set(f"{{{name}}}:other", "of A", 17, resource=name)


def test_in_a_cluster_a_key_of_another_slot_is_refused_before_anything_is_sent(redis_cluster: RedisServer) -> None:
    with RedisCluster.from_url(redis_cluster.url) as client:
        with pytest.raises(InvalidRequest, match=r"name it \{account:7\}:"):
            RedisFence(client).set("balance:7", "1", 17, resource="account:7")
