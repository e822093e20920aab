"""What one turn of the loop does is bounded, however many want something of it; and all of it is done in the end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.core.table import dictionary
from holdfast.core.table.changes import PutSession
from holdfast.engines.resp.wire import pack
from holdfast.server import batches, listing, pipelines
from holdfast.server.users import User
from tests.server.inside import Client, GatedStore, Inside, opened

CLIENTS = 200
READER = User("reader", reads=("",))


@pytest.fixture
async def inside() -> AsyncIterator[Inside]:
    inside = Inside()
    yield inside
    inside.close()


async def test_waits_that_end_together_end_in_several_turns(inside: Inside) -> None:
    client, service = await opened(inside, "session1"), inside.service
    client.send("HF.ACQUIRE", "session1-h", "q", "OWNER", "h")
    for number in range(1_500):
        client.send("HF.ACQUIRE", f"session1-{number}", "q", "OWNER", f"w{number}")
    await inside.settle()
    waiting, ended = service.table.waiting, []
    for number in range(1_500):
        service.waits.begin(f"session1-{number}", service.now, 0.001, None)
    over = inside.loop.time() + 0.01
    while inside.loop.time() < over:
        pass  # the loop does not turn before all of them are over
    while waiting.count:
        before = waiting.count
        await inside.turn(1)
        ended.append(before - waiting.count)

    assert sum(ended) == 1_500
    assert max(ended) < 600


async def test_a_listing_passes_so_many_dead_names_and_goes_on_in_the_next_part(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MOST_LOOKED_AT", 50)
    service, table = inside.service, inside.service.table
    for session, mark in (("session1", "a"), ("session2", "z")):
        client = await opened(inside, session)
        for number in range(200 if mark == "a" else 3):
            client.send("HF.ACQUIRE", f"{session}-{number}", f"{mark}{number}")
        await inside.settle()
    # It has ended, and no turn has cleared it away yet.
    table.put(PutSession(table.sessions["session1"]._replace(expires_at=0.0)))
    names, looked, after, parts = [], [], ("", ""), 0
    while True:
        before = table.looked_at
        page = listing.locks_under(service, READER, "", "holdfast.lock", 10, after)
        looked.append(table.looked_at - before)
        names += [lock.name for lock in page.locks]
        parts += 1
        if page.cursor is None:
            break
        assert page.cursor > after
        after = page.cursor

    assert names == ["z0", "z1", "z2"]
    assert max(looked) <= 55
    assert parts > 3


async def test_a_look_at_one_lock_passes_so_many_dead_claims(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionary, "MOST_ROWS", 50)
    service, table = inside.service, inside.service.table
    client = await opened(inside, "session1")
    for number in range(500):
        client.send("HF.ACQUIRE", f"session1-{number}", "k", "SHARED", "OWNER", number)
    await inside.settle()
    table.put(PutSession(table.sessions["session1"]._replace(expires_at=0.0)))
    before = table.looked_at

    assert not listing.one_lock(service, "holdfast.lock", "k", 10).holders
    assert table.looked_at - before <= 60


async def test_no_more_is_granted_while_many_changes_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MOST_CHANGES", 100)
    store = GatedStore()
    inside = Inside(store)

    async def until_kept() -> None:
        while True:
            await inside.turn(5)
            if not store.gates:
                return
            store.let()

    client, batch = Client(inside), inside.service.batches
    client.send("HF.OPEN", "session1", "x" * 22, 60_000)
    await until_kept()
    client.send("HF.ACQUIRE", "session1-w", "k", "OWNER", "w")
    for number in range(3_000):
        client.send("HF.ACQUIRE", f"session1-{number}", "k", "SHARED", "OWNER", f"r{number}")
        await until_kept()
    assert inside.service.table.waiting.count == 3_000
    client.send("HF.RELEASE", "session1-w")
    pending = []
    while inside.service.table.waiting.count:
        await inside.turn(30)
        pending.append(len(batch.changes))
        assert len(store.gates) == 1, "nothing goes on"
        store.let()
        await inside.turn(1)
    await until_kept()

    assert max(pending) < 1_200
    assert max(map(len, store.kept)) < 1_200
    inside.close()


async def test_pipelines_of_many_connections_share_the_turns(inside: Inside) -> None:
    clients = [await opened(inside, f"session{number}") for number in range(CLIENTS)]
    changes = inside.service.batches.changes
    for number, client in enumerate(clients):
        pairs = ((("HF.ACQUIRE", f"session{number}-{n}", f"{number}x{n}"), n) for n in range(16))
        data = b"".join(pack(acquire) + pack(("HF.RELEASE", f"session{number}-{n}")) for acquire, n in pairs)
        client.connection.data_received(data)
    assert len(changes) < batches.MOST_CHANGES + 100
    await inside.settle()

    assert [len(client.replies()) for client in clients] == [32] * CLIENTS


async def test_requests_of_many_connections_are_taken_apart_in_several_turns(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines, "MOST_READ", 500)
    clients = [Client(inside) for _ in range(CLIENTS)]
    for client in clients:
        client.connection.data_received(pack(("PING",)) * 50)
    backlogs = [len(client.connection._backlog) for client in clients]
    assert sum(backlogs) + sum(client.connection._owed for client in clients) <= 550
    await inside.settle()

    assert [len(client.replies()) for client in clients] == [50] * CLIENTS


async def test_a_request_that_comes_alone_waits_for_no_pipeline(inside: Inside) -> None:
    single = await opened(inside, "single")
    clients = [await opened(inside, f"session{number}") for number in range(CLIENTS)]
    for number, client in enumerate(clients):
        data = b"".join(pack(("HF.ACQUIRE", f"session{number}-{n}", f"{number}x{n}")) for n in range(64))
        client.connection.data_received(data)
    single.send("PING")
    await inside.turn(5)

    assert single.replies() == [b"PONG"]
    assert any(client.connection._backlog for client in clients)
    await inside.settle()
    assert [len(client.replies()) for client in clients] == [64] * CLIENTS
