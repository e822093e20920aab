"""What an operator or an accident does to the server, and what a client makes of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from hashlib import sha1

import pytest
import redis as redis_py

import holdfast
from holdfast import EngineUnavailable, aio
from holdfast.engines.redis import ghosts as redis_ghosts
from holdfast.locks import acquire
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.process import wait_until
from holdfast.verify.servers.redis import RedisServer
from tests.conformance.apis import Api, Front
from tests.conformance.stage import Stage, eventually, soon
from tests.engines.redis.conftest import SUBJECT


@pytest.fixture
async def own_stage(api: Api, server: RedisServer) -> AsyncIterator[Stage]:
    """Clients of a server that may be harmed."""
    stage = Stage(SUBJECT, api, server.url)
    yield stage
    await stage.end()


@pytest.fixture
async def locks(own_stage: Stage) -> Front:
    return await own_stage.client(ttl=2.0)


@pytest.fixture
def operator(server: RedisServer) -> Iterator[redis_py.Redis]:
    with redis_py.Redis(port=server.port) as client:
        yield client


async def test_scripts_that_the_server_forgot_are_sent_again(locks: Front, operator: redis_py.Redis) -> None:
    held = await locks.lock("k").acquire()
    operator.script_flush()
    await held.renew()
    operator.script_flush()
    await held.release()
    operator.script_flush()

    assert await locks.lock("k").try_acquire() is not None


async def test_killed_connections_are_made_again(own_stage: Stage, locks: Front, operator: redis_py.Redis) -> None:
    rival = await own_stage.client()
    held = await locks.lock("k").acquire()
    waiting = await own_stage.queued(locks, "k", rival.lock("k").acquire())
    for kind in ("normal", "pubsub"):
        operator.client_kill_filter(_type=kind, skipme=True)
    await held.renew()
    await held.release()

    assert (await soon(waiting)).valid


async def test_a_wake_up_that_was_published_while_the_subscription_was_down_is_not_missed(
    own_stage: Stage, locks: Front, operator: redis_py.Redis
) -> None:
    rival = await own_stage.client()
    held = await locks.lock("k").acquire()
    waiting = await own_stage.queued(locks, "k", rival.lock("k").acquire())
    with operator.pipeline() as pipe:
        # In one transaction with what a release publishes, so that the waiter cannot have subscribed again before.
        pipe.execute_command("CLIENT", "KILL", "TYPE", "pubsub")  # type: ignore[no-untyped-call]
        pipe.publish("nobody", "listens")
        pipe.execute()
    released = time.monotonic()
    await held.release()

    assert (await soon(waiting)).valid
    # The safety net behind it looks after two seconds at the earliest.
    assert time.monotonic() - released < 1.9


async def test_a_server_that_pauses_is_waited_for(locks: Front, operator: redis_py.Redis) -> None:
    held = await locks.lock("k").acquire()
    operator.client_pause(300)
    await held.renew()

    held.check()
    await held.release()


async def test_a_script_that_is_sent_in_full_and_gets_lost_is_an_unknown_outcome(
    api: Api, server: RedisServer, operator: redis_py.Redis
) -> None:
    with Proxy("127.0.0.1", server.port) as proxy:
        stage = Stage(SUBJECT, api, f"redis://127.0.0.1:{proxy.port}/0")
        client = await stage.client(ttl=10.0)
        await client.cell("c").set(1)
        operator.script_flush()
        # The short form is answered "no such script"; the long one that follows never is.
        proxy.replies.set("cut", after=len("-NOSCRIPT No matching script. Please use EVAL.\r\n"))
        with pytest.raises(EngineUnavailable) as error:
            await client.cell("c").set(2)
        proxy.heal()
        await stage.end()

    assert error.value.outcome == "unknown"


async def test_a_release_that_redis_forgot_does_not_keep_the_lock(
    own_stage: Stage, server: RedisServer, operator: redis_py.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_ghosts, "LAID_AFTER", 0.5)
    client, rival = await own_stage.client(ttl=3.0), await own_stage.client(ttl=3.0)
    held = await client.lock("k").acquire()
    kept = await client.lock("other").acquire()
    operator.save()
    await held.release()
    server.kill()
    server.start()
    assert [holder.token for holder in (await rival.inspect("k")).holders] == [held.token]

    # Nobody holds it as far as anybody knows: the client whose claim it was withdraws it.
    theirs = await rival.lock("k").acquire(wait=20.0)
    assert theirs.token > held.token
    kept.check()


async def test_a_restart_without_persistence_loses_locks_loudly_and_tokens_grow(
    own_stage: Stage, locks: Front, server: RedisServer
) -> None:
    held = await locks.lock("k").acquire()
    server.kill()
    server.start()
    await eventually(held.lost.is_set)
    again = await locks.lock("k").acquire(wait=5.0)

    assert not held.valid
    assert again.token > held.token


async def test_flushall_loses_locks_loudly_and_tokens_grow(locks: Front, operator: redis_py.Redis) -> None:
    held = await locks.lock("k").acquire()
    operator.flushall()
    await eventually(held.lost.is_set)
    again = await locks.lock("k").acquire(wait=5.0)

    assert again.token > held.token


async def test_a_lock_that_vanished_alone_is_reported_lost_and_the_others_are_kept(
    locks: Front, operator: redis_py.Redis
) -> None:
    """As an eviction does it, or a failover to a replica that had not heard of it yet."""
    kept, gone = [await locks.lock(name).acquire() for name in ("kept", "gone")]
    operator.delete("holdfast:1:{holdfast}:lock:lock:gone")

    await eventually(gone.lost.is_set)
    kept.check()
    assert not operator.exists("holdfast:1:{holdfast}:lock:lock:gone")


async def test_a_renewal_never_takes_a_lock_again(own_stage: Stage, locks: Front, operator: redis_py.Redis) -> None:
    held = await locks.lock("k").acquire()
    operator.flushall()
    rival = await own_stage.client()
    theirs = await rival.lock("k").acquire(wait=5.0)
    await eventually(held.lost.is_set)

    assert [holder.token for holder in (await rival.inspect("k")).holders] == [theirs.token]


async def test_a_server_that_is_full_refuses_what_it_cannot_do_and_releases(
    locks: Front, operator: redis_py.Redis
) -> None:
    held = await locks.lock("k").acquire()
    operator.config_set("maxmemory", "1")
    with pytest.raises(EngineUnavailable) as error:
        await locks.lock("other").acquire(wait=1.0)
    assert error.value.outcome == "not done"
    await held.release()
    operator.config_set("maxmemory", "0")
    assert await locks.lock("k").try_acquire() is not None


async def test_tokens_never_lose_digits(locks: Front, operator: redis_py.Redis) -> None:
    """They are microseconds of the server's clock: more digits than Lua's own conversion keeps."""
    seconds, microseconds = operator.time()
    tokens = []
    for _ in range(50):
        held = await locks.lock("k").acquire()
        tokens.append(held.token)
        await held.release()

    assert tokens == sorted(set(tokens))
    assert 0 <= tokens[0] - (seconds * 1_000_000 + microseconds) < 10_000_000
    assert len({token % 1000 for token in tokens}) > 5
    assert int(operator.get("holdfast:1:{holdfast}:last") or 0) == tokens[-1]


async def test_a_clock_that_is_behind_does_not_send_tokens_back(locks: Front, operator: redis_py.Redis) -> None:
    ahead = 2_000_000_000_000_000
    operator.set("holdfast:1:{holdfast}:last", ahead)
    held = await locks.lock("k").acquire()

    assert held.token == ahead + 1


async def test_a_line_goes_on_in_order_while_the_clock_is_behind(
    own_stage: Stage, locks: Front, operator: redis_py.Redis
) -> None:
    rival = await own_stage.client()
    held = await locks.lock("k").acquire()
    ahead = 2_000_000_000_000_000
    operator.set("holdfast:1:{holdfast}:last", ahead)
    waiting = [
        await own_stage.queued(locks, "k", own_stage.another(client).lock("k").acquire())
        for client in (rival, locks, rival)
    ]

    tokens = [held.token]
    for task in waiting:
        await held.release()
        held = await soon(task)
        tokens.append(held.token)
    assert tokens[1:] == sorted(set(tokens[1:]))
    assert tokens[1] > ahead


async def test_half_a_second_is_half_a_second(own_stage: Stage, operator: redis_py.Redis) -> None:
    brief = await own_stage.client(ttl=0.5)
    held = await brief.lock("k").acquire()
    own_stage.silence(brief)
    started = time.monotonic()
    rival = await own_stage.client()
    await rival.lock("k").acquire(wait=5.0)

    assert time.monotonic() - started < 2.0
    assert not held.valid


async def published(operator: redis_py.Redis, act: Callable[[], Awaitable[object]]) -> list[bytes]:
    """Everything that is published while something is done."""
    with operator.pubsub() as heard:  # type: ignore[no-untyped-call]
        heard.psubscribe("*")
        while heard.get_message(timeout=1.0)["type"] != "psubscribe":
            continue
        await act()
        operator.publish("holdfast-test", "the end")
        told = []
        while (message := heard.get_message(timeout=5.0)) and message["data"] != b"the end":
            told.append(message["data"])
    return told


async def test_a_release_wakes_exactly_the_next_one(own_stage: Stage, locks: Front, operator: redis_py.Redis) -> None:
    rival = await own_stage.client()
    held = await locks.lock("k").acquire()
    waiting = [await own_stage.queued(locks, "k", own_stage.another(rival).lock("k").acquire()) for _ in range(4)]

    async def release() -> None:
        await held.release()
        await soon(waiting[0])

    told = await published(operator, release)

    theirs = waiting[0].result()
    assert [message.split()[:2] for message in told] == [[b"granted", theirs.target._hold.claim.id.encode()]]
    for task in waiting[1:]:
        assert not task.done()
    await theirs.release()
    for task in waiting[1:]:
        await (await soon(task)).release()


async def test_a_lock_that_goes_on_within_a_client_needs_no_message(
    own_stage: Stage, locks: Front, operator: redis_py.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody looks by itself.
    monkeypatch.setattr(acquire, "FIRST_POLL", 3600.0)
    held = await locks.lock("k").acquire()
    waiting = [await own_stage.queued(locks, "k", own_stage.another(locks).lock("k").acquire()) for _ in range(3)]

    async def release() -> None:
        await held.release()
        for task in waiting:
            await (await soon(task)).release()

    assert await published(operator, release) == []


async def test_a_thousand_tasks_that_wait_share_a_handful_of_connections(
    server: RedisServer, operator: redis_py.Redis
) -> None:
    async def take_a_turn(locks: aio.Client) -> None:
        async with locks.lock("k"):
            return

    async with aio.connect(server.url) as locks:
        held = await locks.lock("k").acquire()
        tasks = [asyncio.create_task(take_a_turn(locks)) for _ in range(1000)]
        await eventually(lambda: operator.zcard("holdfast:1:{holdfast}:line:lock:k") == 1000, 60)
        connections = len(operator.client_list())
        await held.release()
        await asyncio.wait_for(asyncio.gather(*tasks), 60)

    assert connections <= 6


def test_a_thousand_threads_that_wait_share_a_handful_of_connections(
    server: RedisServer, operator: redis_py.Redis
) -> None:
    with holdfast.connect(server.url) as locks:

        def take_a_turn() -> None:
            with locks.lock("k"):
                return

        held = locks.lock("k").acquire()
        threads = [threading.Thread(target=take_a_turn) for _ in range(1000)]
        for thread in threads:
            thread.start()
        wait_until(lambda: operator.zcard("holdfast:1:{holdfast}:line:lock:k") == 1000, 60, "a thousand waiting")
        connections = len(operator.client_list())
        held.release()
        for thread in threads:
            thread.join(60)

    assert not any(thread.is_alive() for thread in threads)
    assert connections <= 13


@pytest.mark.parametrize(
    "message",
    [b"hello", b"\xff\xfe", b"", b"granted someone", b"granted x y -1 0", b"granted x 1 -1 0 " + b"0" * 40],
    ids=repr,
)
async def test_what_others_publish_is_not_the_end_of_the_keeper(
    own_stage: Stage, locks: Front, operator: redis_py.Redis, message: bytes
) -> None:
    rival = await own_stage.client()
    held = await locks.lock("k").acquire()
    for channel in operator.pubsub_channels():
        operator.publish(channel, message)
    waiting = await own_stage.queued(locks, "k", rival.lock("k").acquire())
    await held.release()

    assert (await soon(waiting)).valid


async def test_a_forged_notice_grants_nothing(
    own_stage: Stage, locks: Front, operator: redis_py.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever may publish to a channel of Redis knows claim ids, and what notices look like."""
    rival = await own_stage.client()
    held = await locks.lock("k").acquire()
    waiting = await own_stage.queued(locks, "k", rival.lock("k").acquire())
    (waiter,) = (await locks.inspect("k")).waiters
    genuine = f"granted {waiter.claim} {held.token + 1} -1 0"
    for channel in operator.pubsub_channels():
        for forged in (genuine, f"{genuine} {'0' * 40}", f"{genuine} {sha1(genuine.encode()).hexdigest()}"):
            operator.publish(channel, forged)
    await eventually(lambda: caplog.text.count("did not publish") == 2)
    # Notices are read in order: all of these were read when one that came later has been.
    other = await locks.lock("other").acquire()
    following = await own_stage.queued(locks, "other", own_stage.another(rival).lock("other").acquire())
    await other.release()
    await (await soon(following)).release()

    assert not waiting.done()
    await held.release()
    assert (await soon(waiting)).token > held.token


async def test_the_secret_that_signs_notices_is_never_published(
    own_stage: Stage, locks: Front, operator: redis_py.Redis
) -> None:
    rival = await own_stage.client()
    held = await locks.lock("k").acquire()
    waiting = await own_stage.queued(locks, "k", rival.lock("k").acquire())

    async def release() -> None:
        await held.release()
        await soon(waiting)

    told = await published(operator, release)
    sessions = operator.scan_iter("holdfast:1:{holdfast}:session:*")
    secrets = [bytes(operator.hget(key, "secret") or b"") for key in sessions]  # type: ignore[arg-type]
    assert told
    assert len(secrets) == 2
    assert all(secrets)
    assert not any(secret in message for message in told for secret in secrets)
