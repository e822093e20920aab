"""What would take long is done in steps, refused, or answered in parts: on a real server, and through the client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

import holdfast
from holdfast.verify.servers.process import wait_until
from tests.servers.lock_server import LockServer, Wire

MANY = 700
SECRET = "A" * 22


@pytest.fixture(scope="module")
def server() -> Iterator[LockServer]:
    with LockServer(config="[limits]\nsearch = 100\n") as started:
        yield started


@pytest.fixture
def session(server: LockServer, request: pytest.FixtureRequest) -> Iterator[tuple[Wire, str]]:
    id_ = f"session{abs(hash(request.node.name)) % 10**12}"
    with server.speak() as wire:
        wire("HF.OPEN", id_, SECRET, 60_000)
        yield wire, id_
        wire("HF.CLOSE", id_)


def all_of(wire: Wire, requests: Sequence[tuple[object, ...]]) -> list[object]:
    for request in requests:
        wire.send(*map(str, request))
    return [wire.reply() for _ in requests]


def readers(wire: Wire, session: str, name: str) -> None:
    wanted = [("HF.ACQUIRE", f"{session}-r{i}", name, "SHARED", "OWNER", f"r{i}") for i in range(MANY)]
    assert all(isinstance(reply, list) for reply in all_of(wire, wanted))


def test_a_long_run_of_readers_is_granted_in_several_steps(session: tuple[Wire, str]) -> None:
    wire, id_ = session
    wire("HF.ACQUIRE", f"{id_}-w", "granted", "OWNER", "w")
    readers(wire, id_, "granted")

    assert wire("HF.RELEASE", f"{id_}-w") == "OK"
    # The next request of this connection comes when a part of them is granted at most.
    wait_until(lambda: wire("HF.LOOK", f"{id_}-r{MANY - 1}")[0] == "granted", 10.0, "the last of them is granted")


def test_names_under_a_subtree_are_granted_in_several_steps(session: tuple[Wire, str]) -> None:
    wire, id_ = session
    wire("HF.ACQUIRE", f"{id_}-s", "tree", "SUBTREE", "OWNER", "s")
    all_of(wire, [("HF.ACQUIRE", f"{id_}-n{i}", f"tree/{i}", "OWNER", f"n{i}") for i in range(MANY)])

    wire("HF.RELEASE", f"{id_}-s")

    for number in range(MANY):
        claim = f"{id_}-n{number}"
        wait_until(lambda claim=claim: wire("HF.LOOK", claim)[0] == "granted", 10.0, f"{claim} is granted")  # type: ignore[misc]


def test_a_search_for_a_deadlock_that_is_too_large_is_refused_with_the_limit(session: tuple[Wire, str]) -> None:
    wire, id_ = session
    all_of(wire, [("HF.ACQUIRE", f"{id_}-h{i}", f"ring{i}", "OWNER", f"o{i}") for i in range(200)])
    all_of(wire, [("HF.ACQUIRE", f"{id_}-w{i}", f"ring{i + 1}", "OWNER", f"o{i}") for i in range(199)])

    refused = str(wire("HF.ACQUIRE", f"{id_}-x", "ring0", "OWNER", "o199"))

    assert refused.startswith("HFLIMIT the limit search = 100 is reached")
    assert wire("HF.LOOK", f"{id_}-x")[0] == "gone"


def test_a_client_is_told_that_nothing_was_done(server: LockServer, session: tuple[Wire, str]) -> None:
    wire, id_ = session
    all_of(wire, [("HF.ACQUIRE", f"{id_}-h{i}", f"link{i}", "OWNER", f"o{i}") for i in range(200)])
    all_of(wire, [("HF.ACQUIRE", f"{id_}-w{i}", f"link{i + 1}", "OWNER", f"o{i}") for i in range(199)])
    with holdfast.connect(f"{server.url}?durable=0") as locks, locks.lock("own"):
        with pytest.raises(holdfast.EngineUnavailable, match="search") as refused:
            locks.lock("link0").acquire(wait=5.0)
        assert refused.value.outcome == "not done"


@pytest.mark.parametrize("force", [False, True])
def test_a_break_of_many_holders_reaches_all_of_them(
    server: LockServer, session: tuple[Wire, str], force: bool
) -> None:
    wire, id_ = session
    readers(wire, id_, "broken")
    first = wire("HF.BREAK", "broken", "FORCE") if force else wire("HF.BREAK", "broken")
    assert len(first) == 257
    assert first[-1][0] == "more"

    with holdfast.connect(f"{server.url}?durable=0") as operator:
        if force:
            assert operator.break_lock("broken", force=True) == MANY - 256
            assert operator.inspect("broken").holders == ()
        else:
            flags, told = ("CURSOR", first[-1][1]), first[:-1]
            while flags:
                reply = wire("HF.BREAK", "broken", *flags)
                more = reply.pop() if isinstance(reply[-1], list) else None
                told += reply
                flags = ("CURSOR", more[1]) if more else ()  # type: ignore[assignment]
            assert sorted(told) == sorted(f"{id_}-r{i}" for i in range(MANY))


def test_a_client_hears_of_all_grants_that_are_gone(server: LockServer) -> None:
    with holdfast.connect(f"{server.url}?durable=0", ttl=2.0) as locks, locks.lock("first") as first:
        grants = [locks.lock(f"gone{i}").acquire() for i in range(1_100)]
        with holdfast.connect(f"{server.url}?durable=0") as operator:
            for grant in grants:
                operator.break_lock(grant.name, force=True)
        wait_until(lambda: all(grant.lost.is_set() for grant in grants), 20.0, "all are lost")
        assert first.valid


@pytest.mark.parametrize("cursor", ["x", "1 2", "1 2 x", "a b session01-1", "1 2 session01-1 3"])
def test_a_cursor_that_is_none_is_refused(session: tuple[Wire, str], cursor: str) -> None:
    wire, _ = session
    assert str(wire("HF.BREAK", "k", "CURSOR", cursor)).startswith("HFINVALID")
