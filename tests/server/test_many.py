"""HF.MANY: several steps as one request come to what they come to one by one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hiredis import ReplyError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.core.table.rows import Row
from holdfast.engines.resp.wire import pack
from holdfast.server import many
from holdfast.server.frames import FrameReader
from holdfast.server.limits import Limits
from holdfast.server.service import STOPPING
from holdfast.server.store import StoreFull
from holdfast.server.users import User
from holdfast.server.wire_error import WireError
from tests.server.inside import SECRET, Client, GatedStore, Inside, StillStore, opened

KIND = "holdfast.lock"
HALF = User("half", holds=("a", "b"), reads=("",), breaks=("",))

names = st.sampled_from(["a", "b", "c", "d", "e", "a/b", "ü", "", "a b", "."])
numbers = st.integers(0, 6).map(str)
odd_numbers = st.sampled_from(["", "ü", "a-1", "1" * 33, "_", "1 "])
owners = st.sampled_from(["x", "y", "x" * 40, "ü", "", "session0", "session1/x"])
threads = st.sampled_from(["", "t", "t t", "ü", "t" * 40])
takes = st.builds(
    lambda mark, number, name, owner, thread: f"{mark}{number}\t{name}\t{owner}\t{thread}",
    st.sampled_from("+?"), numbers | numbers | odd_numbers, names, owners, threads,
)  # fmt: skip
plain_takes = st.builds(
    lambda mark, number, name: f"{mark}{number}\t{name}\tx{number}\tt", st.sampled_from("+?"), numbers, names
)
gives = (numbers | numbers | odd_numbers).map(lambda number: f"-{number}")
wrong = st.sampled_from(["", "+", "-", "x", "+1", "+1\ta", "+1\ta\tx", "+1\ta\tx\tt\tu", "-1\ta", "*1\ta\tx\tt"])
requests = st.lists(st.one_of(plain_takes, plain_takes, takes, gives, gives, wrong), min_size=1, max_size=6)
scripts = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([KIND, "x.lock", "x.semaphore"]), requests), max_size=12
)


def as_requests(session: str, kind: str, lines: list[str]) -> list[bytes]:
    """What says the same, step by step."""
    found = []
    for line in lines:
        try:
            found.append(pack(tuple(many.request(session, kind, line))))
        except WireError:
            found.append(pack(("ECHO", WRONG)))
    return found


WRONG = "no step"


def in_full(reply: Any) -> Any:
    """The reply to a step, a grant as HF.ACQUIRE tells it."""
    if isinstance(reply, ReplyError) and "tabs between" in str(reply):
        return WRONG.encode()
    return [b"granted", reply, None, None] if type(reply) is int else reply


async def came_to(script: list[Any], as_one: bool) -> Any:
    """What each client was told, and the table at the end."""
    inside = Inside(StillStore(), Limits(claims=9, claims_per_session=4, waiters_per_lock=2, text=25))
    inside.service.time_of_day = lambda: 5.0
    try:
        clients = [await opened(inside, f"session{number}", HALF if number == 1 else None) for number in range(3)]
        told: list[list[str]] = [[], [], []]
        for number, kind, lines in script:
            session = f"session{number}"
            if as_one:
                clients[number].send("HF.MANY", session, kind, "\n".join(lines))
            else:
                for request in as_requests(session, kind, lines):
                    clients[number].connection.data_received(request)
            await inside.settle()
            replies = clients[number].replies()
            if as_one:
                (replies,) = replies
            told[number] += [repr(in_full(reply)) for reply in replies]
        table = inside.service.table
        rows = sorted((repr(row.claim), row.order, row.token or 0) for row in table.rows.values())
        return told, rows, table.counters, table.claims_of, table.alone.keys(), counted(inside)
    finally:
        inside.close()


def counted(inside: Inside) -> tuple[int, ...]:
    tally = inside.service.tally
    return tally.grants, tally.releases, tally.queued, tally.deadlocks, sum(tally.hold_seconds.counts)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(scripts)
def test_as_one_is_as_one_by_one(script: list[Any]) -> None:
    assert asyncio.run(came_to(script, True)) == asyncio.run(came_to(script, False))


def step(number: int, name: str, mark: str = "+") -> str:
    return f"{mark}{number}\t{name}\towner{number}\ttask {number}"


def rows(inside: Inside) -> dict[str, Row]:
    return inside.service.table.rows


async def gated() -> tuple[Inside, GatedStore, Client]:
    """A session in a store that keeps nothing more until it is told to."""
    store = GatedStore()
    inside = Inside(store)
    opening = asyncio.ensure_future(opened(inside, "session1"))
    await inside.turn()
    store.let()
    return inside, store, await opening


async def test_a_grant_is_told_by_its_token_and_a_release_by_ok() -> None:
    inside = Inside(StillStore())
    client = await opened(inside, "session1")
    client.send("HF.MANY", "session1", KIND, "\n".join([step(1, "a"), step(2, "b"), "-1", step(3, "a")]))
    await inside.settle()

    assert client.replies() == [[1001, 1002, b"OK", 1003]]
    claim = rows(inside)["session1-3"].claim
    assert (claim.name, claim.owner, claim.thread, claim.kind) == ("a", "session1/owner3", "task 3", KIND)
    inside.close()


async def test_the_steps_of_a_request_are_taken_together_and_kept_by_one_commit() -> None:
    inside, store, client = await gated()
    client.send("HF.MANY", "session1", KIND, "\n".join(step(number, f"lock{number}") for number in range(30)))
    await inside.turn()
    assert client.replies() == []
    store.let()
    await inside.settle()

    assert len(client.replies()[0]) == 30
    assert len(store.kept) == 2
    inside.close()


async def test_a_request_counts_as_its_steps() -> None:
    inside = Inside(StillStore())
    client = await opened(inside, "session1")
    before = inside.service.tally.commands
    client.send("HF.MANY", "session1", KIND, "\n".join([step(1, "a"), step(2, "a/b"), step(3, "a", "?"), "-1"]))
    await inside.settle()

    assert inside.service.tally.commands - before == 4
    inside.close()


async def test_a_step_that_is_refused_leaves_the_others_alone() -> None:
    inside = Inside(StillStore())
    client, other = await opened(inside, "session1", HALF), await opened(inside, "session2")
    other.send("HF.ACQUIRE", "session2-1", "a")
    lines = [step(1, "b"), step(2, "a", "?"), step(3, "a"), step(4, "c"), "nonsense", step(5, "bb"), "-7"]
    client.send("HF.MANY", "session1", KIND, "\n".join(lines))
    await inside.settle()

    (replies,) = client.replies()
    granted, refused, queued, forbidden, wrong, also, gone = map(in_full, replies)
    assert (granted[1], also[1]) == (1002, 1004)
    assert (refused[0], queued[:2], gone[0]) == (b"refused", [b"queued", 1], b"gone")
    assert [str(error).split()[0] for error in (forbidden,)] == ["NOPERM"]
    assert wrong == WRONG.encode()
    other.send("HF.RELEASE", "session2-1")
    await inside.settle()
    assert rows(inside)["session1-3"].token is not None
    inside.close()


async def test_limits_count_within_a_request_too() -> None:
    inside = Inside(StillStore(), Limits(claims_per_session=4))
    client = await opened(inside, "session1")
    client.send("HF.MANY", "session1", KIND, "\n".join(step(number, f"lock{number}") for number in range(6)))
    await inside.settle()

    (replies,) = client.replies()
    assert replies[:4] == [1001, 1002, 1003, 1004]
    assert [str(error).split()[0] for error in replies[4:]] == ["HFLIMIT"] * 2
    inside.close()


@pytest.mark.parametrize("line", ["+1\ta\tan owner too long\tt", "+1\ta\tx\ta thread whose name is too long"])
async def test_a_text_that_is_too_long_is_refused_as_by_itself(line: str) -> None:
    inside = Inside(limits=Limits(text=25))
    client = await opened(inside, "session1")
    client.send("HF.MANY", "session1", KIND, f"{line}\n{step(2, 'b')}")
    await inside.settle()

    ((refused, granted),) = client.replies()
    assert str(refused).startswith("HFINVALID")
    assert in_full(granted)[0] == b"granted"
    inside.close()


@pytest.mark.parametrize("role", ["nobody", "another", "side", "over"])
async def test_only_who_speaks_for_the_session_takes_steps_for_it(role: str) -> None:
    inside = Inside()
    main = await opened(inside, "session1")
    main.send("HF.MANY", "session1", KIND, step(1, "a"))
    client = await opened(inside, "session2") if role == "another" else Client(inside)
    if role == "side":
        client.send("HF.RESUME", "session1", SECRET, "SIDE")
    if role == "over":
        main.send("HF.CLOSE", "session1")
    await inside.settle()
    client.replies()
    client.send("HF.MANY", "session1", KIND, f"{step(2, 'b')}\n-1")
    await inside.settle()

    ((acquired, released),) = client.replies()
    if role == "over":
        assert (acquired, released[0]) == ([b"over"], b"gone")
        assert not rows(inside)
    else:
        assert [str(error).split()[0] for error in (acquired, released)] == ["HFDETACHED"] * 2
        assert rows(inside).keys() == {"session1-1"}
    inside.close()


async def test_nothing_is_done_of_a_request_that_is_none() -> None:
    inside = Inside()
    client = await opened(inside, "session1")
    client.send("HF.MANY", "session1", KIND, "\n".join(step(number, "a") for number in range(many.MOST_STEPS + 1)))
    client.send("HF.MANY", "session1", KIND)
    client.send("HF.MANY", "session1", "lock", step(1, "a"))
    client.send("HF.MANY", "s", KIND, step(1, "a"))
    Client(inside).send("HF.MANY", "*", KIND, step(1, "a"))
    client.send("HF.MANY", "session1", KIND, step(1, "a").encode() + b"\xff")
    await inside.settle()

    errors = client.replies()
    assert all(isinstance(error, ReplyError) for error in errors)
    assert [str(error).split()[0] for error in errors] == ["ERR", "ERR", *["HFINVALID"] * 3]
    assert not rows(inside)
    inside.close()


async def test_a_request_whose_batch_is_refused_is_refused_whole() -> None:
    inside, store, client = await gated()
    client.send("HF.MANY", "session1", KIND, f"{step(1, 'a')}\n{step(2, 'b')}")
    await inside.turn()
    store.let(StoreFull("test", "the disk is full"))
    await inside.settle()

    (refused,) = client.replies()
    assert str(refused).startswith("HFFULL")
    assert not rows(inside)
    inside.close()


async def test_who_asks_for_much_lets_others_have_their_turn() -> None:
    inside = Inside(StillStore())
    client, other = await opened(inside, "session1"), await opened(inside, "session2")
    long = [
        pack(("HF.MANY", "session1", KIND, "\n".join(step(number, f"lock{number}") for number in some)))
        for some in (range(many.MOST_A_TURN), range(many.MOST_A_TURN, 2 * many.MOST_A_TURN))
    ]
    client.connection.data_received(b"".join(long))
    other.send("HF.ACQUIRE", "session2-1", f"lock{many.MOST_A_TURN}")
    await inside.settle()

    assert len(client.replies()) == 2
    assert other.replies()[0][0] == b"granted", "all of it was carried out first"
    inside.close()


async def test_steps_that_have_to_wait_are_no_more_than_there_could_be_requests_in_a_turn() -> None:
    inside = Inside(StillStore())
    client, other = await opened(inside, "session1"), await opened(inside, "session2")
    other.send("HF.ACQUIRE", "session2-1", "a")
    lines = [step(number, "a") for number in range(100)]
    client.send("HF.MANY", "session1", KIND, "\n".join([*lines, step(100, "free")]))
    await inside.settle()

    (replies,) = client.replies()
    assert [reply[0] for reply in replies[: many.MOST_APART]] == [b"queued"] * many.MOST_APART
    assert {str(error).split()[0] for error in replies[many.MOST_APART :]} == {"HFTURN"}
    assert len(replies) == 101
    assert len(rows(inside)) == many.MOST_APART + 1
    inside.close()


async def test_long_replies_end_a_request_early() -> None:
    inside = Inside(StillStore(), Limits(output=4 * 1000))
    client, other = await opened(inside, "session1"), await opened(inside, "session2")
    other.send("HF.ACQUIRE", "session2-1", "a", "NOTE", "n" * 400)
    client.send("HF.MANY", "session1", KIND, "\n".join(step(number, "a") for number in range(10)))
    await inside.settle()

    (replies,) = client.replies()
    done = [reply for reply in replies if not isinstance(reply, ReplyError)]
    assert 1 <= len(done) <= 3
    assert {str(error).split()[0] for error in replies[len(done) :]} == {"HFTURN"}
    assert len(rows(inside)) == len(done) + 1
    inside.close()


async def chained(inside: Inside, owners: int) -> Client:
    """Each owner but the last waits for what the next one has: whoever asks for the last one's closes no ring yet."""
    client = await opened(inside, "session1")
    for number in range(owners):
        client.send("HF.ACQUIRE", f"session1-h{number}", f"k{number}", "OWNER", f"session1/t{number}")
    for number in range(owners - 1):
        client.send("HF.ACQUIRE", f"session1-w{number}", f"k{number + 1}", "OWNER", f"session1/t{number}")
    await inside.settle()
    client.replies()
    return client


CLOSING = [f"+x{number}\tk0\tt399\t" for number in range(8)]
"""Steps that each close the ring of such a chain of 400."""


async def test_a_search_through_very_many_is_the_last_step_of_a_request() -> None:
    inside = Inside(StillStore())
    client = await chained(inside, 400)
    client.send("HF.MANY", "session1", KIND, "\n".join(CLOSING))
    await inside.settle()

    ((first, *rest),) = client.replies()
    assert (first[0], len(first[1])) == (b"deadlock", 400)
    assert [str(error).split()[0] for error in rest] == ["HFTURN"] * 7
    inside.close()


async def test_after_a_search_through_very_many_others_have_their_turn() -> None:
    inside = Inside(StillStore())
    client, other = await chained(inside, 400), await opened(inside, "session2")
    before = inside.service.cost
    client.connection.data_received(b"".join(as_requests("session1", KIND, CLOSING)))

    assert 400 < inside.service.cost - before < 12_000, "all of it is carried out first"
    other.send("HF.ACQUIRE", "session2-1", "free")
    await inside.turn(100)
    assert [reply[0] for reply in client.replies()] == [b"deadlock"] * 8
    assert other.replies()[0][0] == b"granted"
    inside.close()


async def test_short_requests_count_for_their_steps() -> None:
    inside = Inside(StillStore())
    client, other = await opened(inside, "session1"), await opened(inside, "session2")
    short = [
        pack(("HF.MANY", "session1", KIND, f"{step(number, f'lock{number}')}\n{step(number + 1, f'lock{number + 1}')}"))
        for number in range(0, 30, 2)
    ]
    client.connection.data_received(b"".join(short))
    other.send("HF.ACQUIRE", "session2-1", "lock20")
    await inside.settle()

    assert len(client.replies()) == 15
    assert other.replies()[0][0] == b"granted", "all of it was carried out first"
    inside.close()


async def test_what_others_hold_is_nobodys_limit() -> None:
    """Those that are more than one session may have are still taken together."""
    inside = Inside(StillStore(), Limits(claims_per_session=4))
    for number in range(3):
        filler = await opened(inside, f"filler0{number}")
        filler.send("HF.MANY", "*", KIND, "\n".join(step(each, f"{number}x{each}") for each in range(3)))
    client = await opened(inside, "session1")
    client.send("HF.MANY", "*", KIND, "\n".join(step(number, f"lock{number}") for number in range(6)))
    await inside.settle()

    (replies,) = client.replies()
    assert [type(reply) for reply in replies] == [int] * 4 + [ReplyError] * 2
    inside.close()


async def test_a_server_that_stops_takes_no_steps() -> None:
    inside = Inside()
    client = await opened(inside, "session1")
    inside.service.stop(100)
    client.send("HF.MANY", "session1", KIND, f"{step(1, 'a')}\n{step(2, 'b')}")
    await inside.settle()

    (refused,) = client.replies()
    assert str(refused).startswith(STOPPING.word)
    inside.close()


def test_a_request_of_many_short_steps_is_read_at_once() -> None:
    request = ("HF.MANY", "session1", KIND, "\n".join(step(number, f"invoice:{number:08}") for number in range(32)))

    assert FrameReader(100_000).single(pack(request)) is not None


async def test_the_session_of_a_connection_without_one_is_told_to_be_none() -> None:
    inside = Inside(StillStore())
    stranger, client = Client(inside), await opened(inside, "session1")
    stranger.send("HF.MANY", "*", KIND, step(1, "a"))
    client.send("HF.CLOSE", "session1")
    client.send("HF.MANY", "*", KIND, step(1, "a"))
    await inside.settle()

    assert str(stranger.replies()[0]).startswith("HFDETACHED")
    assert client.replies() == [b"OK", [b"over"]]
    inside.close()
