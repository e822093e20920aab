"""A Redis that is full, whose clock was set back, or that has no token left; and times without end."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis as redis_py

from holdfast import EngineUnavailable
from holdfast.model import MAX_TOKEN
from holdfast.verify.servers.redis import RedisServer
from tests.conformance.apis import Api
from tests.conformance.stage import Stage, eventually, soon
from tests.engines.redis.conftest import SUBJECT

START = "holdfast:1:{holdfast}:"
HOUR_MS = 3_600_000


@pytest.fixture
async def own_stage(api: Api, server: RedisServer) -> AsyncIterator[Stage]:
    """Clients of a server that may be harmed."""
    stage = Stage(SUBJECT, api, server.url)
    yield stage
    await stage.end()


@pytest.fixture
def operator(server: RedisServer) -> Iterator[redis_py.Redis]:
    with redis_py.Redis(port=server.port) as client:
        yield client


def scores(operator: redis_py.Redis, name: str) -> dict[bytes, float]:
    """The members of a sorted set of the namespace."""
    found: Any = operator.zrange(f"{START}{name}", 0, -1, withscores=True)
    return dict(found)


def heartbeats(operator: redis_py.Redis, session: str) -> float:
    """Until when the server takes a session to live: later after each heartbeat."""
    return scores(operator, "sessions").get(session.encode(), 0.0)


def set_back(operator: redis_py.Redis) -> None:
    """What the server has on record, as it looks when its clock has been set back by an hour."""
    for session, expires in scores(operator, "sessions").items():
        late = f"{expires + HOUR_MS:.0f}"
        operator.hset(f"{START}session:{session.decode()}", "expires", late)
        operator.zadd(f"{START}sessions", {session: late})


async def test_a_server_that_is_full_keeps_what_is_held(own_stage: Stage, operator: redis_py.Redis) -> None:
    locks, rival = await own_stage.client(ttl=1.0), await own_stage.client(ttl=1.0)
    held = await locks.lock("k").acquire()
    waiting = await own_stage.queued(locks, "k", rival.lock("k").acquire())
    operator.config_set("maxmemory", "1")
    sessions = [client.target._core.session.id for client in (locks, rival)]
    for _ in range(3):
        before = [heartbeats(operator, session) for session in sessions]

        def renewed(before: list[float] = before) -> bool:
            return all(heartbeats(operator, session) > one for session, one in zip(sessions, before, strict=True))

        await eventually(renewed)
    held.check()
    await held.release()
    theirs = await soon(waiting)
    theirs.check()
    await locks.break_lock("k", force=True)

    await eventually(theirs.lost.is_set)
    assert not operator.hkeys(f"{START}lock:lock:k")


async def test_a_client_of_a_server_that_is_full_closes_and_leaves_nothing(
    own_stage: Stage, api: Api, server: RedisServer, operator: redis_py.Redis
) -> None:
    stage = Stage(SUBJECT, api, server.url)
    locks = await stage.client(ttl=60.0)
    await locks.lock("k").acquire()
    operator.config_set("maxmemory", "1")
    await stage.end()
    operator.config_set("maxmemory", "0")

    other = await own_stage.client()
    assert await other.lock("k").try_acquire() is not None


async def test_a_dead_holder_does_not_keep_its_lock_for_as_long_as_a_clock_was_set_back(
    own_stage: Stage, operator: redis_py.Redis
) -> None:
    dead, locks = await own_stage.client(ttl=1.0), await own_stage.client(ttl=1.0)
    await dead.lock("k").acquire()
    await dead.lock("other").acquire()
    waiting = await own_stage.queued(locks, "other", locks.lock("other").acquire())
    own_stage.silence(dead)
    set_back(operator)

    assert (await locks.lock("k").acquire(wait=10.0)).valid
    assert (await soon(waiting)).valid


async def test_one_heartbeat_bounds_every_session_after_the_clock_was_set_back(
    own_stage: Stage, operator: redis_py.Redis
) -> None:
    dead, locks = await own_stage.client(ttl=1.0), await own_stage.client(ttl=1.0)
    await dead.lock("mortal", max_hold=1.0).acquire()
    held = await locks.lock("k").acquire()
    own_stage.silence(dead)
    set_back(operator)
    for member, dies in scores(operator, "mortal").items():
        operator.zadd(f"{START}mortal", {member: dies + HOUR_MS})
    await held.renew()

    now = float(operator.time()[0]) * 1000
    assert max(scores(operator, "sessions").values()) < now + 10_000
    held.check()


async def test_a_step_that_needs_a_token_changes_nothing_where_none_is_left(
    own_stage: Stage, operator: redis_py.Redis
) -> None:
    locks, rival = await own_stage.client(), await own_stage.client()
    first = await locks.lock("first").acquire()
    ticket = await first.hand_over()
    waiting = await own_stage.queued(locks, "first", rival.lock("first").acquire(wait=3.0))
    cell = await locks.cell("c").set(1)
    operator.set(f"{START}last", MAX_TOKEN - 1)
    last = await locks.lock("last").acquire()
    assert last.token == MAX_TOKEN

    before = {key: operator.dump(key) for key in operator.scan_iter() if b":session" not in key}
    for attempt in (
        locks.lock("k").acquire(wait=1.0),
        locks.semaphore("s", limit=2).acquire(wait=1.0),
        own_stage.another(rival).adopt(ticket),
        locks.cell("c").set(2, version=cell),
    ):
        with pytest.raises(EngineUnavailable, match="every token under 2\\^53 has been given out") as error:
            await attempt
        assert error.value.outcome == "not done"
    first.check()
    after = {key: operator.dump(key) for key in operator.scan_iter() if b":session" not in key}
    assert {key: value for key, value in after.items() if b":gone:" not in key} == before

    # What is held can be given back; it just goes to nobody.
    await first.release()
    await last.release()
    with pytest.raises((EngineUnavailable, TimeoutError)):
        await waiting
    assert not operator.keys(f"{START}lock:*")
    assert not operator.keys(f"{START}line:*")


@pytest.mark.parametrize("max_hold", [float(sys.maxsize), 1e300])
async def test_a_hold_without_end_is_nobody_elses_error(
    own_stage: Stage, operator: redis_py.Redis, max_hold: float
) -> None:
    """Whatever the API lets pass: the scripts bound it, also for a client that does not."""
    locks, rival = await own_stage.client(), await own_stage.client()
    held = await locks.lock("k").acquire()
    lock = rival.lock("k")
    lock.target._spec = replace(lock.target._spec, max_hold=max_hold)
    waiting = await own_stage.queued(locks, "k", lock.acquire())
    await held.release()

    theirs = await soon(waiting)
    theirs.check()
    await theirs.release()
    assert not operator.keys(f"{START}mortal")
