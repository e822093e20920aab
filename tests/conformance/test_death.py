"""Clients that end without a farewell: what they cost those who live."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.conformance.apis import Front
from tests.conformance.stage import Stage, eventually, soon

TTL = 0.6
SLACK = 1.0
"""What a busy machine may add."""

VICTIM = """
import sys, threading, holdfast
url, ttl, name, what = sys.argv[1:]
locks = holdfast.connect(url, ttl=float(ttl), app="victim")
waits = []
lock = locks.lock(name, on_wait=lambda place: waits or (waits.append(place), print("queued", flush=True)))
grant = lock.acquire()
print("granted", grant.token, flush=True)
threading.Event().wait()
"""

across_processes = pytest.mark.needs_of_subject("across_processes")


@contextmanager
def victim(url: str, name: str, ttl: float) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A process that holds a lock, or waits for it; and the first thing that it said."""
    command = [sys.executable, "-m", "tests.faults.code", VICTIM, url, str(ttl), name, ""]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().split()
        finally:
            process.kill()


@pytest.mark.by_turns
@pytest.mark.any_connection
async def test_a_dead_holder_costs_at_most_the_rest_of_its_ttl(stage: Stage, locks: Front) -> None:
    dying = await stage.client(ttl=TTL)
    held = await dying.lock("k").acquire()
    stage.silence(dying)
    died = time.monotonic()
    after = await locks.lock("k").acquire(wait=10.0)

    assert time.monotonic() - died < TTL + SLACK + stage.subject.lag
    assert after.token > held.token


@pytest.mark.by_turns
async def test_several_dead_ones_cost_no_more_than_one(stage: Stage, locks: Front) -> None:
    """Neither holder nor waiters: each would have had its turn, and its ttl, after the other."""
    dying = [await stage.client(ttl=TTL) for _ in range(4)]
    held = await dying[0].lock("k").acquire()
    for client in dying[1:]:
        await stage.queued(locks, "k", client.lock("k").acquire())
    waiting = await stage.queued(locks, "k", locks.lock("k").acquire())
    for client in dying:
        stage.silence(client)
    died = time.monotonic()

    assert (await soon(waiting)).token > held.token
    assert time.monotonic() - died < TTL + SLACK + stage.subject.lag


@pytest.mark.by_turns
async def test_a_dead_waiter_blocks_nobody_past_its_ttl(stage: Stage, locks: Front, rival: Front) -> None:
    held = await locks.lock("k").acquire()
    dying = await stage.client(ttl=TTL)
    await stage.queued(locks, "k", dying.lock("k").acquire())
    waiting = await stage.queued(locks, "k", rival.lock("k").acquire())
    stage.silence(dying)
    died = time.monotonic()
    await held.release()

    assert (await soon(waiting)).valid
    assert time.monotonic() - died < TTL + SLACK + stage.subject.lag


@pytest.mark.by_turns
async def test_a_living_waiter_keeps_its_place_for_longer_than_its_ttl(stage: Stage, locks: Front) -> None:
    held = await locks.lock("k").acquire()
    patient = await stage.client(ttl=1.0)
    waiting = await stage.queued(locks, "k", patient.lock("k").acquire())
    looker = stage.another(locks)
    line = [waiter.claim for waiter in (await looker.inspect("k")).waiters]
    began = time.monotonic()

    async def old() -> bool:
        waiters = (await looker.inspect("k")).waiters
        assert [waiter.claim for waiter in waiters] == line, "it lost its place"
        return time.monotonic() - began > 1.5 and all(waiter.age > 1.5 for waiter in waiters)

    await eventually(old)
    await held.release()
    assert (await soon(waiting)).valid


@pytest.mark.by_turns
async def test_the_line_shows_no_dead_ones(stage: Stage, locks: Front) -> None:
    dying = await stage.client(ttl=0.5)
    held = await dying.lock("k").acquire()
    stage.silence(dying)

    async def gone() -> bool:
        return await stage.in_use(locks, "k") == [] and (await locks.inspect("k")).holders == ()

    await eventually(gone)
    if locks.guarantees.leased:
        assert not held.valid


@pytest.mark.by_turns
@across_processes
async def test_a_holder_killed_by_the_system_costs_at_most_the_rest_of_its_ttl(stage: Stage, locks: Front) -> None:
    with victim(stage.url, "k", TTL) as (process, said):
        assert said[0] == "granted"
        assert await locks.lock("k").try_acquire() is None
        waiting = await stage.queued(locks, "k", locks.lock("k").acquire())
        process.kill()
        died = time.monotonic()
        after = await soon(waiting)

    assert time.monotonic() - died < TTL + SLACK + stage.subject.lag
    assert after.token > int(said[1])


@pytest.mark.by_turns
@across_processes
async def test_a_waiter_killed_by_the_system_costs_at_most_the_rest_of_its_ttl(
    stage: Stage, locks: Front, rival: Front
) -> None:
    held = await locks.lock("k").acquire()
    with victim(stage.url, "k", TTL) as (process, said):
        assert said == ["queued"]
        waiting = await stage.queued(locks, "k", rival.lock("k").acquire())
        process.kill()
        died = time.monotonic()
        await held.release()

        assert (await soon(waiting)).valid
        assert time.monotonic() - died < TTL + SLACK + stage.subject.lag


@pytest.mark.by_turns
@pytest.mark.any_connection
@across_processes
async def test_a_process_wakes_another_by_notification(stage: Stage, locks: Front) -> None:
    held = await locks.lock("k").acquire()
    with victim(stage.url, "k", 10.0) as (process, said):
        assert said == ["queued"]
        released = time.monotonic()
        await held.release()
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)

        if locks.guarantees.notified:
            assert time.monotonic() - released < 1.0
        assert int(line.split()[1]) > held.token


@pytest.mark.by_turns
@across_processes
async def test_tokens_grow_from_process_to_process(stage: Stage, locks: Front) -> None:
    held = await locks.lock("k").acquire()
    await held.release()
    with victim(stage.url, "k", 10.0) as (_, said):
        assert int(said[1]) > held.token
