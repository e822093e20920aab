"""Nothing is let out before it is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from holdfast.core.table.changes import DropRow, PutCell, PutCounter, PutRow, PutSession
from holdfast.engines.resp.wire import Part, pack
from holdfast.runtime import clock
from holdfast.server import batches
from holdfast.server.store import StoreBroken, StoreFull
from tests.server.inside import Client, GatedStore, Inside

SECRET = "x" * 22


@pytest.fixture
async def store() -> GatedStore:
    return GatedStore()


@pytest.fixture
async def inside(store: GatedStore) -> AsyncIterator[Inside]:
    inside = Inside(store)
    yield inside
    inside.close()


async def opened(inside: Inside, store: GatedStore, session: str) -> Client:
    """A client with a session that is kept."""
    client = Client(inside)
    client.send("HF.OPEN", session, SECRET, 60_000)
    await inside.turn()
    store.let()
    await inside.settle()
    assert client.replies()[0][0] == b"open"
    return client


def be_patient(inside: Inside, store: GatedStore, seconds: float) -> None:
    """Let the store be one whose commits take long, and may wait for so long."""
    store.patience, inside.service.batches._pace = seconds, 1e9


async def answer_one_while_another_waits(inside: Inside, store: GatedStore, first: Client, second: Client) -> None:
    """The one that is answered may ask again, with the other."""
    first.send("HF.ACQUIRE", "session1-1", "k1")
    await inside.turn()
    second.send("HF.ACQUIRE", "session2-1", "k2")
    store.let()
    await inside.turn(20)


async def first_is_waited_for(inside: Inside, store: GatedStore, first: Client) -> None:
    """It was answered, and nothing is written until it has asked again."""
    assert len(first.replies()) == 1
    assert store.gates == []
    first.send("HF.RELEASE", "session1-1")
    await inside.turn()
    store.let()
    await inside.settle()


async def test_a_grant_is_answered_when_it_is_kept_and_not_before(inside: Inside, store: GatedStore) -> None:
    client = await opened(inside, store, "session1")
    client.send("HF.ACQUIRE", "session1-1", "k")
    await inside.turn(20)
    assert client.replies() == []

    store.let()
    await inside.settle()

    assert client.replies()[0][0] == b"granted"


async def test_what_comes_during_a_commit_goes_into_the_next_together(inside: Inside, store: GatedStore) -> None:
    clients = [await opened(inside, store, f"session{number}") for number in range(5)]
    before = len(store.kept)
    for number, client in enumerate(clients):
        client.send("HF.ACQUIRE", f"session{number}-1", f"k{number}")
        await inside.turn()
    assert len(store.gates) == 1

    store.let()
    await inside.turn(20)
    assert [len(client.replies()) for client in clients] == [1, 0, 0, 0, 0]
    store.let()
    await inside.settle()

    assert [len(client.replies()) for client in clients] == [0, 1, 1, 1, 1]
    assert len(store.kept) == before + 2


@pytest.mark.parametrize("quick", [True, False])
async def test_who_asks_again_at_once_goes_with_those_who_waited(
    inside: Inside, store: GatedStore, monkeypatch: pytest.MonkeyPatch, quick: bool
) -> None:
    monkeypatch.setattr(batches, "QUICK", 1e9 if quick else 0.0)
    first, second = await opened(inside, store, "session1"), await opened(inside, store, "session2")
    ask_again = partial(inside.loop.call_soon, first.send, "HF.RELEASE", "session1-1")
    monkeypatch.setattr(first.line, "write", lambda data: ask_again())
    await answer_one_while_another_waits(inside, store, first, second)
    before = len(store.kept)
    store.let()
    await inside.turn(20)

    assert [type(change) for change in store.kept[before]] == [PutCounter, PutRow, DropRow]
    assert store.might_block[before] is quick, "the loop waits only where that is short"


@pytest.mark.parametrize("few", [0, 1])
async def test_who_waited_goes_alone_if_nobody_asks_again(
    inside: Inside, store: GatedStore, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(batches, "QUICK", 1e9)
    monkeypatch.setattr(batches, "FEW", few)
    first, second = await opened(inside, store, "session1"), await opened(inside, store, "session2")
    await answer_one_while_another_waits(inside, store, first, second)
    store.let()
    await inside.settle()

    assert len(second.replies()) == 1
    assert [type(change) for change in store.kept[-1]] == [PutCounter, PutRow]
    assert store.might_block[-1] is bool(few), "the loop waits while others are at work only if they are few"


async def test_a_store_that_fails_in_the_call_is_broken(
    inside: Inside, store: GatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await opened(inside, store, "session1")

    def keep(*_: object) -> Any:
        raise KeyError("a mistake")

    monkeypatch.setattr(store, "keep", keep)
    client.send("HF.ACQUIRE", "session1-1", "k")
    await inside.settle()

    assert [type(problem) for problem in inside.broken] == [KeyError]
    assert client.replies() == []


async def test_several_replies_to_one_client_are_written_as_one(
    inside: Inside, store: GatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await opened(inside, store, "session1"), await opened(inside, store, "session2")
    written: list[bytes] = []
    monkeypatch.setattr(first.line, "write", written.append)
    for number in range(3):
        first.send("HF.ACQUIRE", f"session1-{number}", f"a{number}")
        second.send("HF.ACQUIRE", f"session2-{number}", f"b{number}")
    await inside.turn()
    store.let()
    await inside.settle()

    assert [data.count(b"granted") for data in written] == [3]
    assert len(second.replies()) == 3


async def test_a_patient_store_gets_those_who_were_just_answered_with_those_who_waited(
    inside: Inside, store: GatedStore
) -> None:
    first, second = await opened(inside, store, "session1"), await opened(inside, store, "session2")
    be_patient(inside, store, 1e6)
    await answer_one_while_another_waits(inside, store, first, second)
    await first_is_waited_for(inside, store, first)

    assert [len(first.replies()), len(second.replies())] == [1, 1]


async def test_patience_counts_from_when_all_were_answered(
    inside: Inside, store: GatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To let out very many answers takes longer than it lasts."""
    first, second = await opened(inside, store, "session1"), await opened(inside, store, "session2")
    be_patient(inside, store, 60.0)
    batches, now, passed = inside.service.batches, clock.now, [0.0]
    let_out = batches.let_out

    def slowly(*output: Any) -> None:
        let_out(*output)
        passed[0] += 100.0

    monkeypatch.setattr(clock, "now", lambda: now() + passed[0])
    monkeypatch.setattr(batches, "let_out", slowly)
    await answer_one_while_another_waits(inside, store, first, second)

    await first_is_waited_for(inside, store, first)


async def test_a_patient_store_does_not_wait_when_all_who_were_answered_are_there(
    inside: Inside, store: GatedStore
) -> None:
    client = await opened(inside, store, "session1")
    be_patient(inside, store, 1e6)
    for command in (("HF.ACQUIRE", "session1-1", "k"), ("HF.RELEASE", "session1-1")):
        client.send(*command)
        await inside.turn()
        store.let()
        await inside.settle()

    assert len(client.replies()) == 2


async def test_a_patient_store_does_not_wait_for_ever_for_one_who_does_not_come_again(
    inside: Inside, store: GatedStore
) -> None:
    first, second = await opened(inside, store, "session1"), await opened(inside, store, "session2")
    be_patient(inside, store, 0.01)
    first.send("HF.ACQUIRE", "session1-1", "k1")
    await inside.turn()
    second.send("HF.ACQUIRE", "session2-1", "k2")
    store.let()
    deadline = inside.loop.time() + 20
    while not store.gates and inside.loop.time() < deadline:
        await inside.turn()
    store.let()
    await inside.settle()

    assert len(second.replies()) == 1


async def test_nobody_sees_what_is_not_kept_yet(inside: Inside, store: GatedStore) -> None:
    client, reader = await opened(inside, store, "session1"), Client(inside)
    client.send("HF.CELLSET", "c", "new")
    await inside.turn()
    for command in (("HF.CELLGET", "c"), ("HF.INSPECT", "k"), ("HF.LIST",), ("PING",)):
        reader.send(*command)
    await inside.turn(20)
    assert reader.replies() == []

    store.let()
    await inside.settle()

    assert len(reader.replies()) == 4


async def test_a_read_is_answered_at_once_when_nothing_is_under_way(inside: Inside, store: GatedStore) -> None:
    reader = Client(inside)
    reader.send("HF.LIST")
    await inside.turn()

    assert reader.replies() == [[b"locks", 0, [], None]]
    assert store.gates == []


async def test_a_heartbeat_is_answered_at_once_and_kept_with_the_next_batch(inside: Inside, store: GatedStore) -> None:
    client = await opened(inside, store, "session1")
    client.send("HF.RENEW", "session1")
    await inside.turn()
    assert client.replies()[0][0] == b"open"
    assert store.gates == []

    client.send("HF.ACQUIRE", "session1-1", "k")
    await inside.turn()
    store.let()
    await inside.settle()

    kinds = [type(change) for change in store.kept[-1]]
    assert kinds.index(PutSession) < kinds.index(PutRow)


async def test_a_push_waits_for_what_caused_it_to_be_kept(inside: Inside, store: GatedStore) -> None:
    first, second = await opened(inside, store, "session1"), await opened(inside, store, "session2")
    second.send("HELLO", 3)
    for client, session in ((first, "session1"), (second, "session2")):
        client.send("HF.ACQUIRE", f"{session}-1", "k")
    await inside.turn()
    store.let()
    await inside.settle()
    second.replies()

    first.send("HF.RELEASE", "session1-1")
    await inside.turn(20)
    assert second.line.sent == b""
    store.let()
    await inside.settle()

    assert second.line.sent.startswith(b">5\r\n$10\r\nhf.granted\r\n")


async def test_a_full_disk_refuses_the_batch_and_those_who_saw_it(inside: Inside, store: GatedStore) -> None:
    client, other = await opened(inside, store, "session1"), await opened(inside, store, "session2")
    client.send("HF.ACQUIRE", "session1-1", "k")
    await inside.turn()
    other.send("HF.ACQUIRE", "session2-1", "k", "WAIT", 0)
    other.send("HF.LIST")

    store.let(StoreFull("test", "no room"))
    await inside.settle()

    assert [str(reply).split()[0] for reply in client.replies()] == ["HFFULL"]
    assert [str(reply).split()[0] for reply in other.replies()] == ["HFFULL", "HFFULL"]
    assert inside.service.table.rows == {}
    other.send("HF.ACQUIRE", "session2-2", "k", "WAIT", 0)
    await inside.turn()
    store.let()
    await inside.settle()
    assert other.replies()[0][0] == b"granted"


async def test_a_session_that_was_not_kept_is_nobody_s(inside: Inside, store: GatedStore) -> None:
    client = Client(inside)
    client.send("HF.OPEN", "session1", SECRET, 60_000)
    await inside.turn()
    store.let(StoreFull("test", "no room"))
    await inside.settle()
    assert str(client.replies()[0]).startswith("HFFULL")

    client.send("HF.ACQUIRE", "session1-1", "k")
    await inside.settle()

    assert client.replies() == [[b"over"]]


async def test_without_room_only_what_frees_some_is_taken(inside: Inside, store: GatedStore) -> None:
    client = await opened(inside, store, "session1")
    client.send("HF.ACQUIRE", "session1-1", "k")
    await inside.turn()
    store.let()
    await inside.settle()
    client.replies()
    store.room = False

    for command in (
        ("HF.ACQUIRE", "session1-2", "other"),
        ("HF.OPEN", "*", "*", 5000),
        ("HF.CELLSET", "c", "x"),
        ("HF.WATCH", "session1", "w", ""),
        ("HF.HANDOVER", "session1-1", "ticket"),
    ):
        client.send(*command)
    await inside.settle()
    assert [str(reply).split()[0] for reply in client.replies()] == ["HFFULL"] * 5

    client.send("HF.RENEW", "session1")
    client.send("HF.RELEASE", "session1-1")
    await inside.turn()
    store.let()
    await inside.settle()
    renewed, released = client.replies()
    assert (renewed[0], released) == (b"open", b"OK")


async def test_a_user_s_sessions_are_those_that_were_kept(inside: Inside, store: GatedStore) -> None:
    client = await opened(inside, store, "session1")
    client.send("HF.CLOSE", "session1")
    client.send("HF.OPEN", "session2", SECRET, 60_000)
    client.send("HF.OPEN", "session3", SECRET, 60_000)
    await inside.turn()
    assert inside.service.table.usage.of("").sessions == 2

    store.let(StoreFull("test", "the disk is full"))
    await inside.settle()

    assert list(inside.service.table.sessions) == ["session1"]
    assert inside.service.table.usage.of("").sessions == 1


async def test_a_store_that_fails_stops_the_server_and_nobody_is_answered(inside: Inside, store: GatedStore) -> None:
    client = await opened(inside, store, "session1")
    client.send("HF.ACQUIRE", "session1-1", "k")
    await inside.turn()

    store.let(StoreBroken("test", "an fsync failed"))
    await inside.settle()

    assert [type(error) for error in inside.broken] == [StoreBroken]
    assert client.line.sent == b""


async def test_the_end_of_a_session_is_kept_with_the_grant_that_it_makes_possible(
    inside: Inside, store: GatedStore
) -> None:
    clock = [1000.0]
    store.now = lambda: clock[0]  # type: ignore[method-assign]
    inside.service.deaths.due = 0.0
    dead, alive = await opened(inside, store, "session1"), await opened(inside, store, "session2")
    dead.send("HF.ACQUIRE", "session1-1", "k")
    await inside.turn()
    store.let()
    await inside.settle()
    alive.send("HF.RENEW", "session2")
    clock[0] += 59.0
    alive.send("HF.RENEW", "session2")
    clock[0] += 2.0

    alive.send("HF.ACQUIRE", "session2-1", "k", "WAIT", 0)
    await inside.turn()
    store.let()
    await inside.settle()

    assert alive.replies()[-1][0] == b"granted"
    kinds = [type(change).__name__ for change in store.kept[-1]]
    assert kinds.index("DropSession") < kinds.index("PutRow")


async def test_many_heartbeats_are_kept_without_another_reason(inside: Inside, store: GatedStore) -> None:
    client = await opened(inside, store, "session1")
    for _ in range(1001):
        client.send("HF.RENEW", "session1")
    await inside.turn()

    store.let()
    await inside.settle()

    assert len(store.kept[-1]) == 1001
    assert len(client.replies()) == 1001


async def test_a_blocked_claim_that_was_not_kept_is_told(inside: Inside, store: GatedStore) -> None:
    first, second = await opened(inside, store, "session1"), await opened(inside, store, "session2")
    first.send("HF.ACQUIRE", "session1-1", "k")
    second.send("HF.ACQUIRE", "session2-1", "k", "BLOCK")
    await inside.turn()

    store.let(StoreFull("test", "no room"))
    await inside.settle()

    assert str(second.replies()[0]).startswith("HFFULL")
    second.send("PING")
    await inside.settle()
    assert second.replies() == [b"PONG"]


async def test_the_loop_does_not_wait_for_the_many_changes_of_a_few(
    inside: Inside, store: GatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "QUICK", 1e9)
    first, second = await opened(inside, store, "session1"), await opened(inside, store, "session2")
    second.send("HF.ACQUIRE", "session2-1", "k")
    await inside.turn()
    for start in (0, 250):
        lines = [f"+{number}\tlock{number}\tx\tt" for number in range(start, start + 250)]
        first.send("HF.MANY", "session1", "holdfast.lock", "\n".join(lines))
    inside.service.batches._expected = 10
    store.let()
    await inside.turn(20)

    assert store.might_block[-1] is False
    store.let()
    await inside.settle()
    assert [len(reply) for reply in first.replies()] == [250, 250]


@pytest.mark.parametrize("wait", [("WAIT", 60_000), ()])
async def test_who_asked_again_for_what_it_still_has_is_told_so(
    inside: Inside, store: GatedStore, wait: tuple[Part, ...]
) -> None:
    first, second = await opened(inside, store, "session1"), await opened(inside, store, "session2")
    first.send("HF.ACQUIRE", "session1-1", "k")
    await inside.turn()
    store.let()
    await inside.settle()
    first.send("HF.RELEASE", "session1-1")
    second.send("HF.ACQUIRE", "session2-1", "k")
    first.replies()
    first.send("HF.ACQUIRE", "session1-1", "k", *wait, "BLOCK")
    await inside.turn()
    store.let(StoreFull("test", "no room"))
    await inside.settle()

    refused, granted = first.replies()
    assert str(refused).startswith("HFFULL")
    assert granted[0] == b"granted"
    assert not first.connection.held


async def test_a_claim_that_holds_since_nothing_was_kept_waits_for_nothing(inside: Inside, store: GatedStore) -> None:
    first, second = await opened(inside, store, "session1"), await opened(inside, store, "session2")
    first.send("HF.ACQUIRE", "session1-1", "k")
    await inside.turn()
    store.let()
    await inside.settle()
    # In one batch it is given back, taken by another, and asked for again under the same id.
    first.send("HF.RELEASE", "session1-1")
    second.send("HF.ACQUIRE", "session2-1", "k")
    first.send("HF.ACQUIRE", "session1-1", "k", "WAIT", 60_000)
    await inside.turn()
    assert inside.service.waits.until("session1-1") is not None
    store.let(StoreFull("test", "no room"))
    await inside.settle()

    assert inside.service.table.rows["session1-1"].token is not None
    assert (len(inside.service.waits), inside.service.waits.until("session1-1")) == (0, None)


async def in_line(inside: Inside, store: GatedStore, wait: int) -> tuple[Client, Client]:
    """One who holds a lock, and one whose wait for it is kept."""
    first, second = await opened(inside, store, "session1"), await opened(inside, store, "session2")
    first.send("HF.ACQUIRE", "session1-1", "k")
    second.send("HF.ACQUIRE", "session2-1", "k", "WAIT", wait)
    await inside.turn()
    store.let()
    await inside.settle()
    assert [first.replies()[0][0], second.replies()[0][0]] == [b"granted", b"queued"]
    return first, second


async def test_a_wait_whose_grant_was_not_kept_still_ends(inside: Inside, store: GatedStore) -> None:
    first, _ = await in_line(inside, store, 60_000)
    until = inside.service.waits.until("session2-1")
    assert until is not None
    first.send("HF.RELEASE", "session1-1")
    await inside.turn()
    assert inside.service.waits.until("session2-1") is None

    store.let(StoreFull("test", "no room"))
    await inside.settle()

    assert inside.service.waits.until("session2-1") == until


async def test_a_wait_whose_end_was_not_kept_ends_a_moment_later(inside: Inside, store: GatedStore) -> None:
    await in_line(inside, store, 500)
    deadline = inside.loop.time() + 20
    while not store.gates and inside.loop.time() < deadline:
        await inside.turn()
    store.let(StoreFull("test", "no room"))
    await inside.settle()
    assert "session2-1" in inside.service.table.rows

    while not store.gates and inside.loop.time() < deadline:
        await inside.turn()
    store.let()
    await inside.settle()

    assert "session2-1" not in inside.service.table.rows


async def test_a_session_whose_end_was_not_kept_is_spoken_for_as_before(inside: Inside, store: GatedStore) -> None:
    client, side = await opened(inside, store, "session1"), Client(inside)
    side.send("HF.RESUME", "session1", SECRET, "SIDE")
    await inside.turn()
    assert side.replies()[0][0] == b"open"
    client.send("HF.CLOSE", "session1")
    await inside.turn()
    store.let(StoreFull("test", "no room"))
    await inside.settle()
    assert str(client.replies()[0]).startswith("HFFULL")

    for one in (client, side):
        one.send("HF.RENEW", "session1")
    await inside.turn()

    assert [client.replies()[0][0], side.replies()[0][0]] == [b"open", b"open"]


async def test_a_blocked_claim_goes_on_over_another_connection(inside: Inside, store: GatedStore) -> None:
    first, second = await opened(inside, store, "session1"), await opened(inside, store, "session2")
    first.send("HF.ACQUIRE", "session1-1", "k")
    second.send("HF.ACQUIRE", "session2-1", "k", "BLOCK")
    await inside.turn()
    store.let()
    await inside.settle()
    third = Client(inside)
    third.send("HF.RESUME", "session2", SECRET)
    third.send("HF.ACQUIRE", "session2-1", "k", "BLOCK")
    second.lose()
    await inside.settle()

    first.send("HF.RELEASE", "session1-1")
    await inside.turn()
    store.let()
    await inside.settle()

    assert [reply[0] for reply in third.replies()] == [b"open", b"granted"]


async def test_a_look_from_outside_waits_for_what_it_saw(inside: Inside, store: GatedStore) -> None:
    client = await opened(inside, store, "session1")
    client.send("HF.ACQUIRE", "session1-1", "k")
    kept = inside.service.batches.kept()
    await inside.turn(20)
    assert not kept.done()

    store.let()

    assert await kept


@pytest.mark.parametrize(("quick", "together"), [(True, 32), (False, 100)])
async def test_of_many_requests_that_come_together_the_first_are_kept_while_the_others_are_carried_out(
    inside: Inside, store: GatedStore, quick: bool, together: int
) -> None:
    client = Client(inside)
    inside.service.batches.quick = quick
    client.connection.data_received(b"".join(pack(("HF.CELLSET", f"c{number}", "x")) for number in range(100)))
    await inside.turn(20)
    store.let()
    await inside.turn(20)

    cells = [change for change in store.kept[0] if isinstance(change, PutCell)]
    assert len(cells) == together
    assert len(client.replies()) == together
    assert inside.service.tally.commands == 100
