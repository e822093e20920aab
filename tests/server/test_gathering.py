"""Plain requests that are carried out together come to what they come to one by one."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.engines.resp.wire import pack
from holdfast.server import connection as connection_module
from holdfast.server.gathering import PLAIN
from holdfast.server.limits import Limits
from holdfast.server.memory_store import MemoryStore
from holdfast.server.service import STOPPING, Service
from holdfast.server.store import StoreBroken
from holdfast.server.users import User
from tests.server.inside import SECRET, Client, Inside, StillStore, opened

HALF = User("half", holds=("a", "b"), reads=("",), breaks=("",))


OPTIONS: list[tuple[bytes, ...]] = [
    (b"WAIT", b"0"), (b"wait", b"600000"), (b"SHARED",), (b"SUBTREE",), (b"REENTRANT",), (b"NOTE", b"why"),
    (b"OWNER", b"@/me"), (b"OWNER", b"me"), (b"OWNER", b"@"), (b"LIMIT", b"2"), (b"MAXHOLD", b"60000"),
    (b"KIND", b"x.lock"), (b"NO", b"SUCH"), (b"BLOCK",), (b"NOTE", b"\xff"), (b"OWNER", b"@/me", b"THREAD", b"t"),
    (b"OWNER", b"@/me", b"THREAD", "\u00fc".encode()), (b"OWNER", b"@/me", b"THREAD", b"\xff"), (b"OWNER", b"@/\xff"),
    (b"OWNER", b"@/me", b"THREAD", b"t", b"WAIT", b"0"), (b"OWNER", b"@/me", b"OWNER", b"@/you"), (b"OWNER",),
    (b"OWNER", b"@/me", b"THREAD"), (b"OWNER", b"@/me", b"THREAD", b"t", b"THREAD", b"u"), (b"THREAD", b"t"),
    (b"OWNER", b"@/" + b"x" * 30), (b"OWNER", b"@/me", b"THREAD", b"x" * 30), (b"OWNER", b"@/me", b"NOTE", b"x" * 30),
]  # fmt: skip
names = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f", b"a/b", "ü".encode(), b"\xff", b""])
# "@" is the sender's own session.
claims = st.integers(0, 5).map(lambda number: b"@-%d" % number)
odd_claims = st.sampled_from([
    b"*", b"@-", b"@-\xc3\xbc", b"@-a-1", b"-1", b"nobody", b"@-" + b"1" * 33, b"session0-1", b"session1-1", b"@1-1",
])  # fmt: skip
acquires = st.builds(
    lambda claim, name, more: [b"HF.ACQUIRE", claim, name, *more],
    claims | claims | odd_claims,
    names,
    st.sampled_from([(), *OPTIONS]),
)
releases = (claims | claims | odd_claims).map(lambda claim: [b"HF.RELEASE", claim])
others = st.one_of(
    claims.map(lambda claim: [b"hf.leave", claim]),
    st.sampled_from([
        [b"HF.ACQUIRE"], [b"HF.ACQUIRE", b"@-1"], [b"HF.RELEASE"], [b"HF.RELEASE", b"@-1", b"x"], [b"PING"],
        [b"HF.INSPECT", b"a"], [b"HF.WATCH", b"@", b"w", b""], [b"HF.UNWATCH", b"@", b"w"],
        [b"HF.BREAK", b"a", b"FORCE"], [b"HF.RESUME", b"session0", SECRET.encode()],
        [b"HF.RESUME", b"session0", SECRET.encode(), b"SIDE"], [b"HF.CLOSE", b"session2"],
    ]),
)  # fmt: skip
requests = st.one_of(acquires, acquires, releases, releases, others)
packets = st.tuples(st.integers(0, 2), st.lists(requests, min_size=1, max_size=4))
turns = st.lists(st.lists(packets, max_size=5), max_size=10)


async def came_to(given_turns: list[Any]) -> tuple[list[list[str]], Any]:
    """What each client was told, and the table at the end."""
    inside = Inside(StillStore(), Limits(claims=9, claims_per_session=4, waiters_per_lock=2, text=25))
    inside.service.time_of_day = lambda: 5.0
    try:
        clients = [Client(inside, HALF if number == 1 else None) for number in range(3)]
        for number, client in enumerate(clients):
            client.send("HF.OPEN", f"session{number}", SECRET, 60_000)
            for option in OPTIONS:
                # So that the words are known.
                words = tuple(word.replace(b"@", b"session%d" % number) for word in option)
                client.send("HF.ACQUIRE", f"session{number}-9", "d", *words)
                client.send("HF.LEAVE", f"session{number}-9")
        told: list[list[str]] = [[], [], []]
        for turn in given_turns:
            for number, frames in turn:
                own = b"session%d" % number
                sent = [pack(tuple(word.replace(b"@", own) for word in frame)) for frame in frames]
                clients[number].connection.data_received(b"".join(sent))
            for _ in range(4):
                await inside.settle()
        for number, client in enumerate(clients):
            told[number] = [repr(reply) for reply in client.replies()]
        table, tally = inside.service.table, inside.service.tally
        rows = sorted((repr(row.claim), row.order, row.token or 0) for row in table.rows.values())
        counted = (tally.commands, tally.grants, tally.releases, tally.queued, sum(tally.hold_seconds.counts))
        return told, (rows, table.counters, table.claims_of, table.by_session.keys(), table.alone.keys(), counted)
    finally:
        inside.close()


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(turns)
def test_together_is_as_one_by_one(given_turns: list[Any]) -> None:
    found = []
    for plain in (PLAIN, frozenset()):
        with pytest.MonkeyPatch.context() as patch:
            chosen = itertools.count(1)
            patch.setattr(secrets, "token_hex", lambda _, chosen=chosen: f"{next(chosen)}")
            patch.setattr(connection_module, "PLAIN", plain)
            found.append(asyncio.run(came_to(given_turns)))

    assert found[0] == found[1]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many requests were carried out together, each time."""
    found: list[int] = []
    real = Service.step_plainly

    def counted(self: Service, given_steps: Any, done: Any) -> Any:
        real(self, given_steps, done)
        found.append(len(done))
        return done

    monkeypatch.setattr(Service, "step_plainly", counted)
    return found


async def test_what_comes_in_one_turn_is_carried_out_together(steps: list[int]) -> None:
    inside = Inside()
    clients = [await opened(inside, f"session{number}") for number in range(5)]
    for number, client in enumerate(clients):
        client.send("HF.ACQUIRE", f"session{number}-0", f"warm{number}", "WAIT", 0)
    await inside.settle()
    steps.clear()
    for number, client in enumerate(clients):
        client.send("HF.ACQUIRE", f"session{number}-1", f"lock{number}", "WAIT", 0)
    await inside.settle()

    assert [client.replies()[-1][0] for client in clients] == [b"granted"] * 5
    assert steps == [5]
    inside.close()


async def test_many_of_one_connection_are_carried_out_together(steps: list[int]) -> None:
    inside = Inside()
    client = await opened(inside, "session1")
    ask = [pack(("HF.ACQUIRE", f"session1-{number}", f"lock{number}", "WAIT", 0)) for number in range(20)]
    give = [pack(("HF.RELEASE", f"session1-{number}")) for number in range(20)]
    client.connection.data_received(b"".join([*ask, *give[:10]]))
    await inside.settle()

    assert [reply if isinstance(reply, bytes) else reply[0] for reply in client.replies()] == [
        *[b"granted"] * 20, *[b"OK"] * 10,
    ]  # fmt: skip
    assert steps == [30]
    inside.close()


async def test_a_request_of_another_connection_sees_what_came_before_it() -> None:
    inside = Inside()
    first, second = await opened(inside, "session1"), await opened(inside, "session2")
    first.send("HF.ACQUIRE", "session1-1", "a", "WAIT", 0)
    second.send("HF.INSPECT", "a")
    await inside.settle()
    first.send("HF.RELEASE", "session1-1")
    second.send("HF.ACQUIRE", "session2-1", "a", "WAIT", 0)
    await inside.settle()

    inspected, granted = second.replies()
    assert len(dict(zip(inspected[::2], inspected[1::2], strict=True))[b"holders"]) == 1
    assert granted[0] == b"granted"
    inside.close()


async def test_a_side_connection_makes_no_claims_together_with_others_either() -> None:
    inside = Inside()
    client, side = await opened(inside, "session1"), Client(inside)
    side.send("HF.RESUME", "session1", SECRET, "SIDE")
    for number in range(2):
        client.send("HF.ACQUIRE", f"session1-{number}", f"lock{number}", "WAIT", 0)
        await inside.settle()
    side.replies()
    side.send("HF.ACQUIRE", "session1-2", "lock2", "WAIT", 0)
    await inside.settle()
    side.send("HF.RELEASE", "session1-0")
    await inside.settle()

    assert [str(reply).split()[0] for reply in side.replies()] == ["HFDETACHED"] * 2
    assert inside.service.table.rows.keys() == {"session1-0", "session1-1"}
    inside.close()


async def test_who_is_to_be_answered_at_the_end_of_the_turn_is_answered_by_a_server_that_stops() -> None:
    inside = Inside()
    client = await opened(inside, "session1")
    client.send("HF.ACQUIRE", "session1-1", "a", "WAIT", 0)
    inside.service.stop(100)
    client.send("HF.RELEASE", "session1-1")
    await inside.settle()

    granted, refused = client.replies()
    assert granted[0] == b"granted"
    assert str(refused).startswith(STOPPING.word)
    inside.close()


class BrokenRoom(MemoryStore):
    """A store that cannot even say whether it has room."""

    broken = False

    def has_room(self) -> bool:
        if self.broken:
            raise StoreBroken("test", "it fails")
        return True


async def test_a_mistake_is_told_to_who_made_it_and_the_others_go_on(steps: list[int]) -> None:
    store = BrokenRoom()
    inside = Inside(store)
    clients = [await opened(inside, f"session{number}") for number in range(4)]
    clients[0].send("HF.ACQUIRE", "session0-1", "a", "WAIT", 0)
    await inside.settle()
    store.broken = True
    steps.clear()
    clients[0].send("HF.RELEASE", "session0-1")
    clients[1].send("HF.ACQUIRE", "session1-1", "a", "WAIT", 0)
    clients[2].send("HF.RELEASE", "session2-1")
    clients[3].send("PING")
    await inside.settle()

    told = [client.replies()[-1] for client in clients]
    assert told[0] == b"OK"
    assert str(told[1]).startswith("ERR internal error")
    assert told[2][0] == b"gone"
    assert told[3] == b"PONG"
    assert steps, "the release was not carried out plainly"
    store.broken = False
    clients[1].send("HF.ACQUIRE", "session1-1", "a", "WAIT", 0)
    await inside.settle()
    assert clients[1].replies()[0][0] == b"granted"
    inside.close()


async def test_what_is_said_together_stays_below_the_limit_for_output(steps: list[int]) -> None:
    inside = Inside(limits=Limits(output=4 * 64 * 10, pipeline=25))
    client = await opened(inside, "session1")
    steps.clear()
    ask = [pack(("HF.ACQUIRE", f"session1-{number}", f"lock{number}", "WAIT", 0)) for number in range(20)]
    client.connection.data_received(b"".join(ask))
    for _ in range(5):
        await inside.settle()

    assert [reply[0] for reply in client.replies()] == [b"granted"] * 20
    assert max(steps) == 10
    inside.close()


@pytest.mark.parametrize("together", [True, False])
async def test_where_all_want_one_lock_few_are_tried_together(steps: list[int], together: bool) -> None:
    inside = Inside()
    clients = [await opened(inside, f"session{number}") for number in range(100 if together else 1)]
    clients[0].send("HF.ACQUIRE", "session0-0", "a")
    await inside.settle()
    steps.clear()
    if together:
        for number, client in enumerate(clients):
            client.send("HF.ACQUIRE", f"session{number}-1", "a", "OWNER", f"session{number}/1")
    else:
        ask = [
            pack(("HF.ACQUIRE", f"session0-{number}", "a", "OWNER", f"session0/{number}")) for number in range(1, 101)
        ]
        clients[0].connection.data_received(b"".join(ask))
    await inside.settle()

    assert inside.service.tally.queued == 100
    # Each goes the ordinary way, which tries it once; few of them were tried before that.
    assert len(steps) < 120
    inside.close()


def test_what_goes_together_is_said_in_capitals() -> None:
    """Others are found too, one by one."""
    assert {word.upper() for word in PLAIN} == PLAIN
