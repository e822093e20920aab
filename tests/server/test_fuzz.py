"""Hostile bytes and hostile requests: never a crash, never another's data, never without bounds."""

from __future__ import annotations

import asyncio
import os
from itertools import pairwise
from typing import Any

import hiredis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.engines.resp.wire import pack
from holdfast.server.frames import MOST_ARGUMENTS, MOST_FRAMES, FrameReader
from holdfast.server.limits import Limits
from holdfast.server.users import User, Users
from tests.server.inside import Client, Inside

EXAMPLES = 2000 if os.environ.get("HOLDFAST_THOROUGH") else 150
MOST = 4096
SECRET, NOTE = "v" * 22, "the victim's own business"

quick = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))

# Pieces of the protocol, so that random bytes get further than the first one.
pieces = st.one_of(
    st.binary(max_size=30),
    st.sampled_from([
        b"*", b"$", b"\r\n", b"*1\r\n", b"*2\r\n", b"*0\r\n", b"*-1\r\n", b"$-1\r\n", b"$4\r\nPING\r\n", b"PING\r\n",
        b"*1\r\n$4\r\nPING\r\n", b"*1000000000\r\n", b"$1000000000\r\n", b"*99999999999999999999\r\n", b">3\r\n",
        b"%1000000000\r\n", b"~1000000000\r\n", b":1\r\n", b"+OK\r\n", b"*01\r\n", b"$+4\r\n", b"\x00", b"\n", b"\r",
        b"$5\r\nab\r\nc\r\n", b"*1_0\r\n", b"* 1\r\n", b"$0\r\n\r\n",
    ]),
)  # fmt: skip
streams = st.lists(pieces, max_size=30).map(b"".join)
cuts = st.lists(st.integers(0, 1000), max_size=10)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in at)})
    return [data[start:end] for start, end in pairwise(edges)]


def spoilt(given: tuple[bytes, int, bytes]) -> bytes:
    """Bytes with something put over them."""
    data, at, piece = given
    return data[:at] + piece + data[at + len(piece) :]


def read(chunks: list[bytes]) -> tuple[list[list[bytes]], str | None]:
    reader = FrameReader(MOST)
    frames: list[list[bytes]] = []
    for chunk in chunks:
        frames += map(list, reader.feed(chunk))
        while reader.more:
            frames += map(list, reader.further())
        assert reader.size <= MOST + len(chunk)
        if reader.error is not None:
            return frames, reader.error.problem
    return frames, None


@quick
@given(streams, cuts)
def test_bytes_mean_the_same_however_they_are_cut(data: bytes, at: list[int]) -> None:
    assert read(cut(data, at)) == read([data])


singles = st.lists(st.binary(max_size=20), max_size=5).map(tuple).map(pack)


@quick
@given(st.one_of(streams, singles, st.tuples(singles, st.integers(0, 60), pieces).map(spoilt)))
def test_what_is_taken_as_a_single_request_is_one(data: bytes) -> None:
    reader = FrameReader(MOST)
    frame = reader.single(data)

    assert reader.size == 0
    if frame is not None:
        assert reader.feed(data) == [frame]
        assert reader.error is None
        assert reader.size == 0


def test_nearly_every_request_is_taken_as_a_single_one() -> None:
    frame = [b"HF.ACQUIRE", b"s-1", b"a", b"WAIT", b"0"]
    reader = FrameReader(MOST)

    assert reader.single(pack(tuple(frame))) == frame
    assert reader.feed(b"*1\r\n$4\r\nPI") == []
    assert reader.single(b"NG\r\n") is None
    long = [b"x" * 1000] * 5
    assert FrameReader(6000).single(pack(tuple(long))) == long
    assert FrameReader(5000).single(pack(tuple(long))) is None


@quick
@given(st.integers(1, 4), st.lists(st.binary(max_size=20), min_size=8, max_size=24), st.integers(0, 200), pieces)
def test_frames_that_are_alike_are_read_as_others_are(size: int, words: list[bytes], at: int, piece: bytes) -> None:
    frames = [words[start : start + size] for start in range(0, len(words) - len(words) % size, size)]
    data = b"".join(pack(tuple(frame)) for frame in frames)
    whole = spoilt((data, at, piece))

    assert read([data]) == (frames, None)
    # Byte by byte nothing is ever alike.
    assert read([whole]) == read([whole[here : here + 1] for here in range(len(whole))])


@quick
@given(streams)
def test_every_frame_is_a_bounded_list_of_bytes(data: bytes) -> None:
    frames, _ = read([data])

    for frame in frames:
        assert 1 <= len(frame) <= MOST_ARGUMENTS
        assert all(type(argument) is bytes for argument in frame)


@quick
@given(st.lists(st.lists(st.binary(max_size=200), min_size=1, max_size=10), max_size=20), cuts)
def test_what_is_packed_is_read(frames: list[list[bytes]], at: list[int]) -> None:
    data = b"".join(pack(tuple(frame)) for frame in frames)

    assert read(cut(data, at)) == (frames, None)


@pytest.mark.parametrize("data", [b"a\n", pack(("a",)), pack(("a" * 50,) * 60), pack(("a", b"\r\n"))])
def test_many_requests_at_once_are_given_a_bounded_number_at_a_time(data: bytes) -> None:
    reader = FrameReader(MOST)
    frames = reader.feed(data * 3000 + data[:-1])
    counts, sizes = [len(frames)], [reader.size]
    while reader.more:
        more = reader.further()
        counts.append(len(more))
        sizes.append(reader.size)
        frames += more

    assert max(counts) <= MOST_FRAMES
    assert sizes[0] >= (3000 - MOST_FRAMES) * len(data)
    assert (len(frames), reader.size) == (3000, len(data) - 1)
    assert reader.feed(data[-1:]) == frames[:1]


def test_what_arrives_while_requests_are_left_comes_after_them() -> None:
    reader = FrameReader(MOST)
    sent = [[b"%d" % number] for number in range(MOST_FRAMES * 2 + 1)]
    data = b"".join(pack(tuple(frame)) for frame in sent)
    frames = reader.feed(data[:-5])

    assert reader.feed(data[-5:]) == []
    while reader.more:
        frames += reader.further()
    assert frames == sent


def test_a_frame_that_comes_byte_by_byte_costs_no_more_than_its_length() -> None:
    reader = FrameReader(2 << 20)
    frame = pack(("HF.CELLSET", "k", b"x" * 100_000))
    found: list[list[bytes]] = []
    for at in range(len(frame)):
        found += map(list, reader.feed(frame[at : at + 1]))

    assert found == [[b"HF.CELLSET", b"k", b"x" * 100_000]]


WORDS = [
    "HF.OPEN", "HF.RESUME", "HF.RENEW", "HF.CLAIMS", "HF.CLOSE", "HF.ACQUIRE", "HF.LOOK", "HF.RELEASE", "HF.LEAVE",
    "HF.HANDOVER", "HF.ADOPT", "HF.MANY", "HF.BREAK", "HF.INSPECT", "HF.LIST", "HF.CELLGET", "HF.CELLSET", "HF.CELLDEL",
    "HF.WATCH", "HF.CELLWATCH", "HF.FETCH", "HF.UNWATCH", "HF.HELLO", "HF.RAISE", "PING", "ECHO", "HELLO", "AUTH",
    "CLIENT", "COMMAND", "INFO", "SELECT", "CONFIG", "RESET",
]  # fmt: skip
OPTIONS = [
    "KIND", "OWNER", "SHARED", "SUBTREE", "LIMIT", "WAIT", "BLOCK", "REENTRANT", "MAXHOLD", "NOTE", "THREAD", "SIDE",
    "QUIET", "APP", "HOST", "PID", "UNANSWERED", "FORCE", "COUNT", "VERSION", "KEEP",
]  # fmt: skip
VALUES = [
    "*", "victim01", "victim01-1", "victim01-2", "attack01", "attack01-1", "attack01-2", "attack01-3", SECRET,
    "a" * 22, "secret/k", "open/k", "open/k/l", "open", "holdfast.lock", "holdfast.semaphore", "holdfast.cell",
    "holdfast.", "0", "1", "2", "3", "50", "1000", "60000", "9007199254740991", "-1", "1e9", "proto=1", "w", "",
    "LIST", "INFO", "ticket", "secret/", "\ud83d\ude00", "a/../b", "x" * 600,
]  # fmt: skip
arguments = st.one_of(
    st.sampled_from(VALUES),
    st.sampled_from(VALUES),
    st.sampled_from(OPTIONS),
    st.binary(max_size=40),
    st.text(max_size=20).map(lambda text: text.encode(errors="replace")),
)
wild = st.tuples(st.sampled_from(WORDS), st.lists(arguments, max_size=9)).map(lambda parts: (parts[0], *parts[1]))

# Requests that are nearly right get to where the decisions are made.
claims = st.sampled_from(["victim01-1", "victim01-2", "victim01-3", *(f"attack01-{n}" for n in range(4)), "*"])
sessions = st.sampled_from(["victim01", "attack01", "attack01", "*"])
names = st.sampled_from(["secret/k", "secret/k", "secret", "open/k", "open/k", "open", "private/k"])
keys = st.sampled_from([SECRET, "a" * 22])
numbers = st.sampled_from([0, 1, 2, 50, 60_000])
steps = st.lists(
    st.one_of(
        st.builds(lambda mark, number, name: f"{mark}{number}\t{name}\tme\tt", st.sampled_from("+?"), numbers, names),
        numbers.map(lambda number: f"-{number}"),
        st.text("+?-\t\n1ak/", max_size=8),
    ),
    max_size=20,
).map("\n".join)
SHAPES: list[tuple[st.SearchStrategy[Any] | str, ...]] = [
    ("HF.OPEN", sessions, keys, st.just(60_000)), ("HF.RESUME", sessions, keys), ("HF.RENEW", sessions),
    ("HF.CLAIMS", sessions),
    ("HF.CLOSE", sessions), ("HF.ACQUIRE", claims, names), ("HF.LOOK", claims), ("HF.RELEASE", claims),
    ("HF.LEAVE", claims), ("HF.HANDOVER", claims, st.just("ticket")),
    ("HF.ADOPT", claims, claims, st.just("ticket"), names), ("HF.MANY", sessions, st.just("holdfast.lock"), steps),
    ("HF.BREAK", names), ("HF.INSPECT", names), ("HF.LIST",),
    ("HF.LIST", names), ("HF.CELLGET", names), ("HF.CELLSET", names, st.just("x")), ("HF.CELLDEL", names),
    ("HF.WATCH", sessions, st.just("w"), names), ("HF.CELLWATCH", sessions, st.just("c"), names),
    ("HF.FETCH", sessions, st.sampled_from(["w", "c"]), numbers), ("HF.UNWATCH", sessions, st.just("w")),
]  # fmt: skip
more = st.one_of(
    st.sampled_from([
        ("SHARED",), ("SUBTREE",), ("REENTRANT",), ("FORCE",), ("SIDE",), ("QUIET",), ("UNANSWERED",), ("BLOCK",),
    ]),
    st.tuples(st.sampled_from(["WAIT", "LIMIT", "MAXHOLD", "VERSION", "KEEP", "COUNT"]), numbers),
    st.tuples(st.sampled_from(["OWNER", "NOTE", "KIND"]), st.sampled_from(["holdfast.lock", "holdfast.", NOTE[:3]])),
)  # fmt: skip
shaped = st.sampled_from(SHAPES).flatmap(
    lambda shape: st.tuples(*(st.just(part) if isinstance(part, str) else part for part in shape))
)
likely = st.tuples(shaped, st.lists(more, max_size=2)).map(lambda parts: (*parts[0], *(w for o in parts[1] for w in o)))
requests = st.one_of(likely, likely, likely, wild)
scripts = st.lists(requests, min_size=10, max_size=40)


def packed(request: tuple[Any, ...]) -> bytes:
    return pack(tuple(part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part for part in request))


async def attack(script: list[tuple[Any, ...]], version: int) -> None:
    """Run requests of somebody who may hold two prefixes and read one, beside somebody with business of its own."""
    users = Users({"somebody": User("somebody", password="never used")})
    inside = Inside(limits=Limits(claims_per_session=5, withdrawn_per_session=3, list=20), users=users)
    everything = ("",)
    victim = Client(inside, User("victim", holds=everything, reads=everything, breaks=everything))
    stranger = Client(inside, User("stranger", holds=("open", "secret"), reads=("open",)))
    victim.send("HF.OPEN", "victim01", SECRET[:21] + "V", 60_000, "APP", NOTE)
    victim.send("HF.ACQUIRE", "victim01-1", "secret/k", "NOTE", NOTE)
    victim.send("HF.ACQUIRE", "victim01-2", "secret/k", "OWNER", NOTE)
    victim.send("HF.CELLSET", "private/k", NOTE)
    await inside.settle()
    assert [reply[0] for reply in victim.replies()] == [b"open", b"granted", b"queued", b"cell"]
    stranger.send("HELLO", version)
    stranger.send("HF.OPEN", "attack01", "a" * 22, 60_000)
    await inside.settle()
    stranger.replies()
    for request in script:
        stranger.connection.data_received(packed(request))
    await inside.settle()

    assert NOTE.encode() not in stranger.line.sent
    assert b"internal error" not in stranger.line.sent
    # One reply a request, unless one is held back, or a login was lost on the way.
    owed = len(script) - len(stranger.connection._backlog) - stranger.connection.held
    assert len(stranger.replies()) == owed
    victim.send("HF.LOOK", "victim01-1")
    victim.send("HF.LOOK", "victim01-2")
    victim.send("HF.CELLGET", "private/k")
    await inside.settle()
    holds, waits, cell = victim.replies()
    assert (holds[0], waits[0], cell[2]) == (b"granted", b"queued", NOTE.encode())
    victim.lose()
    stranger.lose()
    assert not inside.service.connections
    inside.close()


@quick
@given(scripts, st.sampled_from([2, 3]))
def test_no_request_harms_the_server_or_somebody_else(script: list[tuple[Any, ...]], version: int) -> None:
    with asyncio.Runner() as runner:
        runner.run(attack(script, version))


@pytest.mark.parametrize("version", [2, 3])
def test_the_fuzz_would_notice_another_s_data(version: int) -> None:
    """The control: with the right to read everything, the same attack does see it."""

    async def peek() -> bytes:
        inside = Inside()
        victim, stranger = Client(inside), Client(inside)
        victim.send("HF.OPEN", "victim01", SECRET, 60_000, "APP", NOTE)
        victim.send("HF.ACQUIRE", "victim01-1", "secret/k", "NOTE", NOTE)
        stranger.send("HELLO", version)
        stranger.send("HF.INSPECT", "secret/k")
        await inside.settle()
        inside.close()
        return stranger.line.sent

    with asyncio.Runner() as runner:
        assert NOTE.encode() in runner.run(peek())


@quick
@given(st.lists(streams, max_size=5))
def test_a_connection_survives_any_bytes_or_is_closed_with_a_reason(chunks: list[bytes]) -> None:
    async def feed() -> tuple[bytes, bool]:
        inside = Inside()
        client = Client(inside)
        for chunk in chunks:
            client.connection.data_received(chunk)
            await inside.settle()
        inside.close()
        return client.line.sent, client.line.closed

    with asyncio.Runner() as runner:
        sent, closed = runner.run(feed())
    reader = hiredis.Reader()
    reader.feed(sent)
    replies = []
    while (reply := reader.gets()) is not False:
        replies.append(str(reply))
    assert closed == any("Protocol error" in reply for reply in replies)
