"""What an operator or an accident does to the lock server, and what a client makes of it."""

from __future__ import annotations

import asyncio
import threading

import pytest

import holdfast
from holdfast import EngineUnavailable
from tests.conformance.apis import Front
from tests.conformance.stage import Stage, eventually, soon
from tests.conformance.witness import Witness
from tests.servers.lock_server import LockServer
from tests.servers.process import wait_until


async def test_a_killed_server_that_comes_back_knows_its_holder_and_its_line(server: LockServer, stage: Stage) -> None:
    # A start may take long on a busy machine: the holder has to outlive it.
    locks, rival = await stage.client(ttl=20.0), await stage.client(ttl=20.0, app="rival")
    held = await locks.lock("k").acquire()
    waiting = await stage.queued(locks, "k", rival.lock("k").acquire())
    server.kill()
    server.start()

    await eventually(lambda: not held.in_danger)
    held.check()
    assert [holder.token for holder in (await locks.inspect("k")).holders] == [held.token]
    await held.release()
    theirs = await soon(waiting)
    assert theirs.token > held.token


async def test_a_server_that_stops_in_order_and_comes_back_is_hardly_noticed(
    server: LockServer, stage: Stage, locks: Front, rival: Front
) -> None:
    held = await locks.lock("k").acquire()
    await rival.lock("other").acquire()
    # A start may take long on a busy machine.
    locks.target._core.call_limit = rival.target._core.call_limit = 60.0
    server.stop()
    threading.Thread(target=server.start).start()

    # Asked while nobody listens: the client goes on trying for as long as the request may take.
    waiting = stage.begin(rival.lock("k").acquire(wait=60.0))
    await held.release()
    assert (await soon(waiting)).valid


async def test_a_holder_whose_server_stays_away_is_in_danger_and_then_loses_its_lock(
    server: LockServer, stage: Stage
) -> None:
    client = await stage.client(ttl=1.0)
    held = await client.lock("k").acquire()
    server.kill()

    await eventually(lambda: held.in_danger)
    await eventually(held.lost.is_set)
    assert not held.valid
    server.start()
    assert (await client.lock("k").acquire(wait=10.0)).token > held.token


async def test_what_was_never_sent_was_not_done(server: LockServer, stage: Stage) -> None:
    client = await stage.client(ttl=1.0)
    await client.cell("c").set(1)
    server.kill()
    with pytest.raises(EngineUnavailable):
        await client.cell("c").set(2)
    with pytest.raises(EngineUnavailable) as error:
        await client.cell("c").set(2)

    assert error.value.outcome == "not done"
    server.start()
    assert (await client.cell("c").get())[0] == 1


async def test_what_cannot_be_repeated_goes_over_a_connection_that_is_there(server: LockServer, stage: Stage) -> None:
    client = await stage.client(ttl=20.0)
    await client.cell("c").set(1)
    server.kill()
    await asyncio.to_thread(server.start)

    await client.cell("c").set(2)
    assert (await client.cell("c").get())[0] == 2
    await client.lock("k").acquire()
    server.kill()
    await asyncio.to_thread(server.start)
    assert await client.break_lock("k", force=True) == 1


async def test_a_watch_goes_on_after_a_restart(server: LockServer, stage: Stage) -> None:
    locks, rival = await stage.client(ttl=20.0), await stage.client(ttl=20.0, app="rival")
    witness = await Witness.begin(stage, locks)
    held = await rival.lock("a").acquire()
    server.kill()
    server.start()
    await eventually(lambda: not held.in_danger)
    await held.release()

    await witness.sees(("granted", "a"), ("released", "a"))


def test_hundreds_of_threads_that_wait_share_two_connections(server: LockServer) -> None:
    count = 900  # one answer shows 1,000 claims
    with holdfast.connect(server.url, ttl=30.0) as locks, holdfast.connect(server.url) as rival:
        held = rival.lock("k").acquire()
        turns: list[int] = []

        def wait() -> None:
            with locks.lock("k").acquire() as grant:
                turns.append(grant.token)

        threads = [threading.Thread(target=wait) for _ in range(count)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(rival.inspect("k").waiters) == count, 60.0, "all threads in the queue")
        described = server.speak()
        clients = described("CLIENT", "LIST")
        held.release()
        for thread in threads:
            thread.join(60.0)

    assert turns == sorted(turns)
    assert len(turns) == count
    # Two of each client, and the one that asks.
    assert len(clients.splitlines()) == 5


def test_a_server_that_keeps_nothing_on_disk_is_refused_unless_that_is_meant() -> None:
    with LockServer() as server:
        with holdfast.connect(server.url) as locks, pytest.raises(EngineUnavailable, match="durable=0"):
            locks.lock("k").acquire()
        with holdfast.connect(f"{server.url}?durable=0") as locks, locks.lock("k"):
            assert not locks.guarantees.durable


def test_several_servers_that_do_not_share_their_state_are_refused(server: LockServer) -> None:
    url = f"holdfast://127.0.0.1:{server.port},127.0.0.1:{server.port}"
    with holdfast.connect(url) as locks, pytest.raises(EngineUnavailable, match="not replicated"):
        locks.lock("k").acquire()
