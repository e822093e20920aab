"""The store of a cluster: what comes back from etcd, and who may write."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from holdfast.core.table import apply
from holdfast.core.table.changes import Change, PutSession
from holdfast.core.table.commands import CellSet, Enter, Open, Release
from holdfast.core.table.rows import Session
from holdfast.core.urls import parse
from holdfast.engines.etcd import steps
from holdfast.engines.etcd.keys import end_of
from holdfast.engines.etcd.wire import LeaseGone
from holdfast.errors import EngineUnavailable, InvalidRequest
from holdfast.model import Claim, Granted
from holdfast.runtime import clock
from holdfast.server.cluster import entries, head, snapshot
from holdfast.server.cluster.mirror import load
from holdfast.server.cluster.store import ClusterStore
from holdfast.server.cluster.wire import read, read_all
from holdfast.server.codec import TooNew
from holdfast.server.store import Deposed, StoreFull, StoreRefused
from holdfast.verify.proxy import Proxy
from holdfast.verify.servers.etcd import EtcdServer
from tests.core.crowd import replayed
from tests.core.test_stores_agree import Stores
from tests.core.walk import walk
from tests.server.inside import Client
from tests.server.replica import Replica
from tests.server.test_sqlite_store import same

_numbers = itertools.count(1)
Start = Callable[..., Awaitable[Replica]]


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdServer]:
    with EtcdServer() as server:
        yield server


@pytest.fixture
def name() -> str:
    """A cluster that nobody has used before."""
    return f"test-{next(_numbers)}"


@pytest.fixture
async def start(etcd: EtcdServer, name: str) -> AsyncIterator[Start]:
    """Starts servers of one cluster; ends them in order."""
    started: list[Replica] = []

    async def make(id_: str = "one", *, leads: bool = True, url: str = "", options: str = "") -> Replica:
        replica = Replica(f"{url or etcd.url}?name={name}{options}", id_)
        started.append(replica)
        return await (replica.lead() if leads else replica.start())

    yield make
    for replica in started:
        await replica.stop()


def claim(name: str, session: str = "s1") -> Claim:
    return Claim(f"{session}-{name}", session, f"{session}/x", "lock", name, waits=False)


async def opened(replica: Replica, *names: str) -> list[int]:
    """Open a session and take these locks; their tokens."""
    await replica.do(Open(Session("s1", 60.0, 0.0, "app", "host", 7)))
    found = [await replica.do(Enter(claim(each))) for each in names]
    return [grant.token for grant in found if isinstance(grant, Granted)]


async def log_of(replica: Replica) -> list[bytes]:
    keys = replica.store.keys
    return [kv.value async for kv in read_all(replica.store.etcd.call, keys.logs, end_of(keys.logs))]


async def parts_of(replica: Replica) -> list[bytes]:
    keys = replica.store.keys
    return [kv.key async for kv in read_all(replica.store.etcd.call, keys.snapshots, end_of(keys.snapshots))]


async def fill(replica: Replica) -> None:
    for number in range(100):
        await replica.do(CellSet("cell", f"c{number}", Random(number).randbytes(60_000), None, None))


async def until_snapshot(replica: Replica) -> None:
    """Take and give back until there is another snapshot."""
    before = replica.store.head.number
    for number in itertools.count():
        await replica.do(Enter(claim(f"n{number}")))
        await replica.do(Release(claim(f"n{number}")))
        if replica.store.head.number > before:
            return


async def one_who_looks_away(start: Start) -> tuple[Replica, Replica]:
    """A leader with a short log, and a follower that has read all of it and reads no more."""
    leader = await start("one", options="&log_kib=20")
    await opened(leader, "held")
    late = await start("late", leads=False)
    await late.until(lambda: late.node.leader is not None and late.node.number == leader.store.number)
    await late.look_away()
    return leader, late


# What comes back


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happened_is_in_etcd_and_in_every_mirror(
    start: Start, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("holdfast.server.recovery.raise_counters", lambda table, above: [])
    leader, follower = await start("one", options="&log_kib=1"), await start("two", leads=False)
    crowd = Stores()
    crowd.begin_watching()
    walk(crowd, seed, steps=80)
    random, kept = Random(seed), list[Change]()
    while len(kept) < len(crowd.changes):
        batch = crowd.changes[len(kept) : len(kept) + random.randint(1, 12)]
        for change in batch:
            leader.service.table.put(change)
        await leader.store.keep(batch)
        kept += batch

    await follower.until(lambda: follower.node.number == leader.store.number)

    assert follower.node.mirror is not None
    same(follower.node.mirror.table, replayed(kept))
    same(await leader.in_etcd(), replayed(kept))
    await leader.until(lambda: leader.store.head.number > 0)


async def test_a_large_batch_comes_back_as_one(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "LARGEST", 1000)
    leader = await start()
    await opened(leader)
    for number in range(3):
        await leader.do(CellSet("cell", f"c{number}", Random(number).randbytes(2500), None, None))

    assert {name: len(cell.value) for (_, name), cell in (await leader.in_etcd()).cells.items()} == {
        "c0": 2500, "c1": 2500, "c2": 2500,
    }  # fmt: skip
    assert len(await log_of(leader)) == 13


async def test_a_batch_that_its_leader_did_not_finish_is_void(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "LARGEST", 1000)
    leader = await start("one", options="&lease=5")
    await opened(leader, "a")
    number = leader.store.number
    # What a leader leaves that dies between two entries of one batch.
    await leader.store.etcd.decide([], [steps.put(leader.store.keys.log(number + 1), b"+half of a")])
    follower = await start("two", leads=False)
    await follower.until(lambda: follower.node.leader is not None)
    await leader.node.resign()

    await follower.until(lambda: follower.service.elsewhere is None)

    assert isinstance(await follower.do(Enter(claim("b"))), Granted)
    assert {row.claim.name for row in (await follower.in_etcd()).rows.values()} == {"a", "b"}


async def test_a_snapshot_takes_the_place_of_the_log(start: Start) -> None:
    leader = await start(options="&log_kib=4")
    await opened(leader, "held")
    for number in range(200):
        await leader.do(Enter(claim(f"n{number}")))
        await leader.do(Release(claim(f"n{number}")))

    await leader.until(lambda: leader.store.head.number > 0 and leader.store._snapshot is None)

    found = await leader.in_etcd()
    assert [row.claim.name for row in found.rows.values()] == ["held"]
    assert len(await log_of(leader)) < 200
    parts = [
        kv
        async for kv in read_all(
            leader.store.etcd.call, leader.store.keys.snapshots, end_of(leader.store.keys.snapshots)
        )
    ]
    assert len(parts) == leader.store.head.parts


async def test_a_snapshot_has_nothing_of_what_came_after_its_batch(start: Start) -> None:
    leader = await start()
    await opened(leader, "a")
    store, table = leader.store, leader.service.table
    store._log_bytes = 1 << 40

    keeping = store.keep([])
    late = apply(Enter(claim("late")), store.now(), table.answer, table.put)
    await keeping
    await leader.until(lambda: store.head.number > 0 and store._snapshot is None)
    found = await leader.in_etcd()
    await store.keep(late.changes)

    assert [row.claim.name for row in found.rows.values()] == ["a"]


async def test_parts_of_a_snapshot_that_was_not_finished_are_cleared_away(start: Start) -> None:
    first = await start("one")
    await opened(first, "a")
    await first.store.etcd.decide([], [steps.put(first.store.keys.part(77, 0), b"half of one")])
    await first.node.resign()
    second = await start("two", options="&log_kib=1")
    for number in range(20):
        await second.do(Enter(claim(f"n{number}")))
    await second.until(lambda: second.store.head.parts > 0 and second.store._snapshot is None)

    assert len(await parts_of(second)) == second.store.head.parts


async def test_a_snapshot_of_cells_that_cannot_be_compressed_is_made_and_read(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "PART", 1 << 10)
    monkeypatch.setattr(entries, "LARGEST", 10_000)
    leader = await start(options="&log_kib=4")
    await opened(leader)
    noise = Random(1)
    for number in range(10):
        await leader.do(CellSet("cell", f"c{number}", noise.randbytes(30_000), None, None))
    # A snapshot begins with a batch, and the last cell may have come while the one before was written.
    async with asyncio.timeout(30.0):
        while leader.store.head.parts <= 10 or leader.store._snapshot is not None:
            await leader.do(CellSet("cell", "small", b"x", None, None))

    found = await leader.in_etcd()

    assert found.cells == leader.service.table.cells


async def test_what_each_user_takes_is_counted_the_same_by_a_server_that_takes_over(start: Start) -> None:
    first = await start("one", options="&log_kib=1")
    second = await start("two", leads=False)
    for user in ("ada", "bob"):
        await first.do(Open(Session(f"session-{user}", 60.0, 0.0, user=user)))
        for number in range(30):
            await first.do(Enter(claim(f"{user}/{number}", f"session-{user}")))
        await first.do(CellSet("cell", user, b"value", user=user))
    await first.do(CellSet("cell", "bob", b"another", user="ada"))
    expected = first.service.table.usage
    assert [expected.of("ada").claims, expected.of("ada").cells, expected.of("bob").cells] == [30, 2, 0]
    assert (await first.in_etcd()).usage == expected

    await first.node.resign()
    await first.look_away()
    await second.until(lambda: second.store.leads and second.service.elsewhere is None)

    assert second.service.table.usage == expected


async def test_the_last_step_of_a_snapshot_that_is_carried_out_late_once_more_changes_nothing(start: Start) -> None:
    leader = await start()
    await opened(leader, "a")
    store, keys = leader.store, leader.store.keys
    first = head.Head(store.head.first_number, store.number, store._chain, 1.0)
    seen = store._head_revision
    also = [steps.delete_range(*keys.logs_upto(store.number))]
    once = await head.write_head(store.etcd.call, keys, store.term, seen, first, also)
    assert once is not None
    second = replace(first, at=2.0)
    assert await head.write_head(store.etcd.call, keys, store.term, once, second) is not None

    assert await head.write_head(store.etcd.call, keys, store.term, seen, first, also) is None

    found, _ = await read(store.etcd.call, keys.head)
    assert head.read_head(found.value) == second  # type: ignore[union-attr]


async def test_a_head_whose_answer_was_lost_was_written(start: Start) -> None:
    leader = await start()
    store, keys, seen = leader.store, leader.store.keys, leader.store._head_revision
    new = replace(store.head, at=1.0)
    once = await head.write_head(store.etcd.call, keys, store.term, seen, new)

    assert await head.write_head(store.etcd.call, keys, store.term, seen, new) == once


async def test_one_who_leads_no_more_writes_no_head(start: Start) -> None:
    leader = await start()
    store = leader.store

    assert await head.write_head(store.etcd.call, store.keys, store.term - 1, store._head_revision, store.head) is None


async def test_who_missed_a_term_finds_what_was_written_in_the_place_of_what_was_not_finished(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await start("one")
    await opened(first, "a")
    late = await start("late", leads=False)
    await late.until(lambda: late.node.leader is not None and late.node.number == first.store.number)
    number = first.store.number
    await first.store.etcd.decide([], [steps.put(first.store.keys.log(number + 1), b"+half of a")])
    assert late.node.mirror is not None
    mirror = late.node.mirror
    await late.until(lambda: mirror.next == number + 2)
    # From here on it sees nothing.
    await late.look_away()
    await first.node.resign()
    second = await start("two")
    await second.do(Enter(claim("b")))
    assert second.store.number == number + 1

    await late.node._tail()

    assert late.node.mirror is mirror
    assert "s1-b" in mirror.table.rows


async def test_who_has_not_read_the_log_that_a_snapshot_stands_for_goes_on_from_where_it_was(start: Start) -> None:
    leader, late = await one_who_looks_away(start)
    mirror = late.node.mirror
    await until_snapshot(leader)

    await late.node._tail()

    assert late.node.mirror is mirror
    assert mirror is not None
    same(mirror.table, leader.service.table)
    assert mirror.head == leader.store.head
    since = leader.store.keys.logs_from(mirror.head.number + 1)
    assert mirror.log_bytes == sum([len(kv.value) async for kv in read_all(leader.store.etcd.call, *since)])


async def test_who_was_away_for_two_snapshots_reads_everything_again(start: Start) -> None:
    leader, late = await one_who_looks_away(start)
    mirror = late.node.mirror
    await until_snapshot(leader)
    await until_snapshot(leader)

    await late.node._tail()

    assert late.node.mirror is not mirror
    assert late.node.mirror is not None
    same(late.node.mirror.table, leader.service.table)


async def test_what_is_cleared_away_late_is_not_what_was_written_since(start: Start) -> None:
    leader = await start()
    await opened(leader, "a")
    store, keys = leader.store, leader.store.keys
    unfinished = await store.etcd.decide([], [steps.put(keys.log(store.number + 1), b"+half of a")])
    mirror, _ = await load(store.etcd.call, keys)
    assert mirror is not None
    await mirror.clear_unfinished(store.etcd.call, keys, store.mine())
    await leader.do(Enter(claim("b")))

    late = steps.step(
        [store.mine(), steps.unchanged(keys.log(store.number), unfinished.revision)],
        [steps.delete(keys.log(store.number))],
    )
    await store.etcd.call(late)

    assert "s1-b" in (await leader.in_etcd()).rows


async def test_time_of_an_earlier_term_does_not_count(start: Start) -> None:
    leader = await start()
    leader.store._offset += 5_000.0
    ahead = leader.store.now()
    mirror, _ = await load(leader.store.etcd.call, leader.store.keys)
    assert mirror is not None

    leader.store.take_over(mirror, leader.store.term, leader.node.membership)
    leader.store.load()

    assert leader.store.now() < ahead - 1_000.0


async def test_a_part_of_the_snapshot_that_was_changed_is_noticed(start: Start) -> None:
    leader = await start(options="&log_kib=1")
    await opened(leader, *map(str, range(20)))
    await leader.until(lambda: leader.store.head.parts > 0 and leader.store._snapshot is None)
    keys, head = leader.store.keys, leader.store.head
    await leader.store.etcd.decide([], [steps.put(keys.part(head.number, 0), b"another")])
    other = await start("two", leads=False)

    with pytest.raises(StoreRefused, match="snapshot cannot be read"):
        await other.until(lambda: False)


async def test_what_a_newer_version_wrote_is_refused(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(head, "FORMAT", 2)
        await (await start("one")).node.resign()
    other = await start("two", leads=False)

    with pytest.raises(StoreRefused, match="format version 2, this Holdfast knows 1") as refused:
        await other.until(lambda: False)
    assert isinstance(refused.value.__cause__, TooNew)


# Who leads


async def test_the_next_leader_has_all_that_was_kept_and_gives_higher_tokens(start: Start) -> None:
    first = await start("one")
    tokens = await opened(first, "a", "b")
    second = await start("two", leads=False)
    await first.node.resign()
    await second.until(lambda: second.service.elsewhere is None)

    found = await second.do(Enter(claim("c")))

    assert {row.claim.name for row in second.service.table.rows.values()} == {"a", "b", "c"}
    assert isinstance(found, Granted)
    assert found.token > max(tokens)


async def test_every_session_has_a_full_ttl_after_a_takeover(start: Start) -> None:
    first = await start("one")
    await opened(first, "a")
    # It has not been heard of for a while.
    quiet = first.service.table.sessions["s1"]._replace(expires_at=first.store.now() + 5.0)
    await first.store.keep([PutSession(quiet)])
    await first.node.resign()
    second = await start("two")

    session = second.service.table.sessions["s1"]

    assert session.expires_at - second.store.now() > 59.0


async def test_who_does_not_lead_any_more_writes_nothing(start: Start) -> None:
    first = await start("one")
    await opened(first, "a")
    # As if it had been stopped for longer than its lease: it knows nothing of what happened.
    await first.store.etcd.revoke(first.node.membership.lease, first.node.membership.deadline)
    second = await start("two")
    log = await log_of(second)

    with pytest.raises(Deposed, match="another server leads"):
        await first.do(Enter(claim("b")))

    assert await log_of(second) == log


async def test_who_was_deposed_follows(start: Start) -> None:
    first, second = await start("one"), await start("two", leads=False)
    await opened(first, "a")
    await first.store.etcd.revoke(first.node.membership.lease, first.node.membership.deadline)
    await second.until(lambda: second.service.elsewhere is None)
    first.service.step(Enter(claim("b")))
    first.service.batches.gather()

    await first.until(lambda: first.node.role == "follower")

    assert isinstance(first.troubles[0], Deposed)
    assert str(first.service.elsewhere) == "NOTLEADER two.test:7420 the leader is there"
    assert "s1-b" not in (await second.in_etcd()).rows


async def test_who_lost_its_lease_is_not_kept_out_by_it(start: Start) -> None:
    leader = await start()
    former = leader.node.membership.lease
    # As after a while without etcd, which lengthens leases when it has elected a leader.
    leader.node.membership.lose()
    leader.node.deposed(Deposed("etcd", "it was out of reach"))

    await leader.until(lambda: leader.store.leads and leader.service.elsewhere is None)

    assert leader.node.membership.lease != former
    with pytest.raises(LeaseGone):
        await leader.store.etcd.keep_alive(former, clock.now() + 5.0)


async def test_who_resigned_does_not_join_again(start: Start) -> None:
    leader = await start()

    await leader.node.resign()
    await leader.node.membership.etcd.call(steps.look(leader.store.keys.head))

    members = leader.store.keys.members
    assert [kv.key async for kv in read_all(leader.store.etcd.call, members, end_of(members))] == []
    assert not leader.store.leads
    assert leader.store.may_answer(), "those who still ask are told to ask elsewhere"


async def test_who_asks_when_the_lead_is_given_back_is_told_to_come_back(start: Start) -> None:
    leader = await start()
    client = Client(leader)
    client.send("HF.OPEN", "session1", "x" * 22, 60_000)
    await leader.until(lambda: bool(client.replies()))
    leader.service.stop(1000)
    await leader.service.batches.finish()
    await leader.node.resign()

    client.send("HF.RELEASE", "session1-1")

    await leader.until(lambda: bool(client.line.sent), within=5.0)
    assert str(client.replies()[0]).startswith("HFSTOPPING")


async def test_a_wait_that_ends_when_the_lead_is_given_back_is_left_to_whoever_leads_next(start: Start) -> None:
    leader = await start()
    for number, wait in ((1, "0"), (2, "60000")):
        client = Client(leader)
        client.send("HF.OPEN", f"session{number}", "x" * 22, 60_000)
        await leader.until(lambda client=client: bool(client.replies()))  # type: ignore[misc]
        client.send("HF.ACQUIRE", f"session{number}-1", "k", "WAIT", wait)
    await leader.until(lambda: "session2-1" in leader.service.table.rows)
    leader.service.stop(1000)
    await leader.service.batches.finish()
    await leader.node.resign()

    leader.service.wait_over("session2-1")

    assert leader.service.table.rows["session2-1"].token is None, "it keeps its place"
    assert leader.troubles == []


async def test_nothing_is_answered_once_the_lease_may_be_anothers(start: Start) -> None:
    leader = await start()
    assert leader.store.may_answer()

    leader.node.membership.deadline = 0.0

    assert not leader.store.may_answer()


async def test_two_clusters_in_one_etcd_do_not_see_each_other(start: Start, etcd: EtcdServer) -> None:
    first = await start("one")
    await opened(first, "a")
    other = await Replica(f"{etcd.url}?name=another").lead()
    try:
        assert not other.service.table.rows
        assert first.store.leads
    finally:
        await other.stop()


# Answers that never came


@pytest.mark.parametrize("way", ["cut", "drop"])
async def test_a_batch_whose_answer_was_lost_is_written_once(
    start: Start, etcd: EtcdServer, name: str, way: str
) -> None:
    with Proxy(etcd.host, etcd.port) as proxy:
        leader = await start(url=f"etcd://127.0.0.1:{proxy.port}")
        await opened(leader, "a")
        number = leader.store.number
        proxy.replies.set("cut" if way == "cut" else "drop")
        entering = asyncio.create_task(leader.do(Enter(claim("b"))))
        await leader.until(lambda: proxy.replies.mode == "pass" or way == "drop")
        if way == "drop":
            other = ClusterStore.from_url(parse(f"{etcd.url}?name={name}"))
            await _appears(other, number + 1)
            other.close()
            proxy.heal()

        assert isinstance(await entering, Granted)
        assert leader.store.number == number + 1
        assert "s1-b" in (await leader.in_etcd()).rows


async def test_a_batch_that_a_full_etcd_applied_and_refused_is_kept(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Etcd can apply a transaction and answer "no space". From then on it refuses every transaction that writes."""
    leader = await start()
    await opened(leader, "a")
    number, asked, decide = leader.store.number, list[bytes](), leader.store.etcd.decide

    async def is_full(*args: Any, **kwargs: Any) -> Any:
        if not asked:
            await decide(*args, **kwargs)
        asked.append(b"")
        raise EngineUnavailable("etcd", "etcdserver: mvcc: database space exceeded", "unknown")

    monkeypatch.setattr(leader.store.etcd, "decide", is_full)
    async with asyncio.timeout(20.0):
        assert isinstance(await leader.do(Enter(claim("b"))), Granted)
    monkeypatch.undo()

    assert leader.store.number == number + 1
    assert len(asked) == 1
    assert "s1-b" in (await leader.in_etcd()).rows


async def _appears(store: ClusterStore, number: int) -> None:
    while True:
        found, _ = await read(store.etcd.call, store.keys.log(number))
        if found is not None:
            return
        await asyncio.sleep(0.01)


async def test_an_etcd_without_room_refuses_the_batch_and_nothing_is_lost(name: str) -> None:
    with EtcdServer("--quota-backend-bytes", str(2 << 20)) as small:
        leader = await Replica(f"{small.url}?name={name}").lead()
        await opened(leader, "a")
        before = leader.store.number
        with pytest.raises(StoreFull):
            await fill(leader)

        leader.service._load()

        assert not leader.store.has_room()
        assert leader.store.number >= before
        assert "s1-a" in leader.service.table.rows
        assert len(leader.service.table.cells) == len((await leader.in_etcd()).cells)
        await leader.stop()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("lease=4", "at least 5 s"),
        ("lease=soon", "a whole number"),
        ("name=a/b", "1 to 64 letters"),
        ("leese=5", "leese"),
    ],
)
def test_an_option_that_is_wrong_is_refused(options: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        ClusterStore.from_url(parse(f"etcd://127.0.0.1:1?{options}"))
