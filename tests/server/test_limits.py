"""Every limit holds, says so, and one client's excess is not another's trouble."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from uuid import uuid4

import pytest

from holdfast.engines.resp.wire import pack
from tests.server.conftest import Speak
from tests.servers.lock_server import LockServer, Wire
from tests.servers.process import wait_until

CONFIG = """
[limits]
connections = 20
sessions = 5
claims = 12
claims_per_session = 10
withdrawn_per_session = 3
withdrawn = 4
waiters_per_lock = 2
watches = 3
watches_per_session = 2
prefix_watches = 2
cells = 2
cell_bytes = 1002
text = 50
value = 600
frame = 8192
pipeline = 50
output = 200000
total_input = 10000
min_ttl = 200
max_ttl = 100000
idle = 0
"""


@pytest.fixture(scope="module")
def tight_server() -> Iterator[LockServer]:
    with LockServer(config=CONFIG) as server:
        yield server


@pytest.fixture
def tight(tight_server: LockServer) -> Iterator[Speak]:
    """Connections to a server with little room; their sessions are closed afterwards."""
    made: list[Wire] = []

    def connect(version: int = 2) -> Wire:
        made.append(tight_server.speak(version))
        return made[-1]

    yield connect
    for wire in made:
        wire.close()
    with tight_server.speak() as left:
        wait_until(lambda: b"connected_clients:1\r" in left("INFO").encode(), 20.0, "the others being gone")


def limit(reply: object) -> str:
    """The limit that an error names."""
    words = str(reply).split()
    assert words[0] == "HFLIMIT", reply
    return words[3]


def close(wire: Wire) -> None:
    assert wire("HF.CLOSE", "*") == "OK"


def test_sessions(tight: Speak) -> None:
    wires = [tight() for _ in range(6)]
    for wire in wires[:5]:
        wire.open()

    assert limit(wires[5]("HF.OPEN", "*", "*", 5000)) == "sessions"

    for wire in wires[:5]:
        close(wire)
    wires[5].open()
    close(wires[5])


def test_claims_that_were_taken_away_count_until_they_are_let_go(tight: Speak) -> None:
    wire = tight()
    session = wire.open()
    for number in range(10):
        assert wire("HF.ACQUIRE", f"{session}-{number}", "k")[0] == "granted"
        wire("HF.BREAK", "k", "FORCE")

    assert limit(wire("HF.ACQUIRE", f"{session}-10", "k")) == "claims_per_session"
    assert wire("HF.ACQUIRE", f"{session}-9", "k")[0] == "gone"
    wire("HF.RELEASE", f"{session}-9")
    assert wire("HF.ACQUIRE", f"{session}-10", "k")[0] == "granted"
    close(wire)


def test_claims_per_session_and_of_all(tight: Speak) -> None:
    wire, other = tight(), tight()
    session, rival = wire.open(), other.open()
    for number in range(10):
        wire("HF.ACQUIRE", f"{session}-{number}", f"k{number}")

    assert limit(wire("HF.ACQUIRE", f"{session}-10", "another")) == "claims_per_session"
    assert wire("HF.ACQUIRE", f"{session}-9", "k9")[0] == "granted"
    assert other("HF.ACQUIRE", f"{rival}-1", "a")[0] == "granted"
    assert other("HF.ACQUIRE", f"{rival}-2", "b")[0] == "granted"
    assert limit(other("HF.ACQUIRE", f"{rival}-3", "c")) == "claims"
    close(wire)
    close(other)


def test_waiters_per_lock(tight: Speak) -> None:
    wire = tight()
    session = wire.open()
    for number in range(3):
        wire("HF.ACQUIRE", f"{session}-{number}", "k", "OWNER", number)

    assert limit(wire("HF.ACQUIRE", f"{session}-3", "k", "OWNER", 3)) == "waiters_per_lock"
    assert wire("HF.ACQUIRE", f"{session}-4", "k", "OWNER", 4, "WAIT", 0)[0] == "refused"
    assert wire("HF.ACQUIRE", f"{session}-2", "k", "OWNER", 2)[0] == "queued"
    close(wire)


def test_watches(tight: Speak) -> None:
    wire, other = tight(), tight()
    session, rival = wire.open(), other.open()
    wire("HF.WATCH", session, "a", "")
    wire("HF.WATCH", session, "b", "")
    assert limit(wire("HF.WATCH", session, "c", "")) == "watches_per_session"
    assert wire("HF.WATCH", session, "b", "") == "OK"
    assert limit(other("HF.WATCH", rival, "a", "")) == "prefix_watches"
    assert other("HF.CELLWATCH", rival, "a", "x") == "OK"
    assert limit(other("HF.CELLWATCH", rival, "b", "x")) == "watches"
    close(wire)
    close(other)


def test_cells(tight: Speak) -> None:
    wire = tight()
    assert str(wire("HF.CELLSET", "a", "x" * 601)).startswith("HFINVALID")
    wire("HF.CELLSET", "a", "x" * 600)
    assert limit(wire("HF.CELLSET", "b", "x" * 401)) == "cell_bytes"
    wire("HF.CELLSET", "b", "x" * 400)
    assert limit(wire("HF.CELLSET", "c", "")) == "cells"
    wire("HF.CELLSET", "a", "x")
    assert wire("HF.CELLSET", "b", "x" * 600)[0] == "cell"
    wire("HF.CELLDEL", "a")
    wire("HF.CELLDEL", "b")
    assert wire("HF.CELLSET", "c", "x" * 600)[0] == "cell"
    wire("HF.CELLDEL", "c")


def test_text_and_ttl(tight: Speak) -> None:
    wire = tight()
    wire.open()
    assert str(wire("HF.ACQUIRE", "*", "k", "NOTE", "x" * 51)).startswith("HFINVALID")
    assert str(wire("HF.OPEN", "*", "*", 199)).startswith("HFINVALID")
    assert str(wire("HF.OPEN", "*", "*", 100_001)).startswith("HFINVALID")
    close(wire)


def test_withdrawals_that_are_too_many_to_remember_end_the_main_connection_instead(tight: Speak) -> None:
    main, side = tight(), tight()
    session = main.open()
    side("HF.RESUME", session, main.secret, "SIDE")
    for number in range(3):
        side("HF.LEAVE", f"{session}-{number}", "UNANSWERED")
    assert main("HF.ACQUIRE", f"{session}-0", "k")[0] == "gone"

    assert side("HF.LEAVE", f"{session}-3", "UNANSWERED") == "OK"

    assert list(main.rest()) == []
    close(side)


def test_withdrawals_of_all_sessions_are_bounded_too(tight: Speak) -> None:
    pairs = [(tight(), tight()) for _ in range(2)]
    sessions = [main.open() for main, _ in pairs]
    for (main, side), session in zip(pairs, sessions, strict=True):
        side("HF.RESUME", session, main.secret, "SIDE")
        for number in range(2):
            side("HF.LEAVE", f"{session}-{number}", "UNANSWERED")

    # It is remembered already: nothing more has to be.
    assert pairs[1][1]("HF.LEAVE", f"{sessions[1]}-1", "UNANSWERED") == "OK"
    assert pairs[1][0]("PING") == "PONG"
    assert pairs[1][1]("HF.LEAVE", f"{sessions[1]}-2", "UNANSWERED") == "OK"

    assert list(pairs[1][0].rest()) == []
    assert pairs[0][0]("PING") == "PONG"
    for _, side in pairs:
        close(side)


def test_claims_that_were_taken_away_count_among_all_claims(tight: Speak) -> None:
    wires = [tight(), tight()]
    for wire in wires:
        session = wire.open()
        for number in range(6):
            assert wire("HF.ACQUIRE", f"{session}-{number}", "k")[0] == "granted"
            wire("HF.BREAK", "k", "FORCE")

    assert limit(wires[1]("HF.ACQUIRE", "*", "k")) == "claims"
    for wire in wires:
        close(wire)


def test_a_frame_that_is_too_large(tight: Speak) -> None:
    wire = tight()
    wire.raw(b"*2\r\n$4\r\nPING\r\n$1000000000\r\nxxx")

    (error,) = wire.rest()
    assert str(error) == "ERR Protocol error: a request has at most 8192 bytes"


def test_unfinished_requests_of_all_clients_together(tight: Speak) -> None:
    first, second, third = tight(), tight(), tight()
    for wire in (first, second):
        wire.raw(b"*2\r\n$4\r\nPING\r\n$6000\r\n" + b"x" * 5900)

    ended = [str(reply) for reply in second.rest()]

    assert ended == ["HFLIMIT the limit total_input = 10000 is reached: too many large requests"] or ended == []
    assert third("PING") == "PONG"
    first.raw(b"x" * 100 + b"\r\n")
    assert len(first.reply()) == 6000


def test_connections(tight_server: LockServer, tight: Speak) -> None:
    wires = [tight() for _ in range(20)]
    for wire in wires:
        wire("PING")

    with tight_server.speak() as one_too_many:
        (refused,) = one_too_many.rest()

    assert limit(refused) == "connections"
    assert wires[0]("PING") == "PONG"


def test_a_client_that_does_not_read_is_closed_and_the_others_do_not_notice(tight: Speak) -> None:
    lazy, side, busy = tight(3), tight(), tight()
    # Pushes are what a client gets without asking. With long ids they are large.
    session, secret, watches = "s" * 64, "x" * 22, ("a" * 64, "b" * 64)
    lazy("HF.OPEN", session, secret, 60_000)
    side("HF.RESUME", session, secret, "SIDE")
    for watch in watches:
        side("HF.WATCH", session, watch, "")
    other = busy.open()
    for turn in range(400):
        for number in range(100):
            busy.send("HF.ACQUIRE", f"{other}-{turn}x{number}", "k")
            busy.send("HF.RELEASE", f"{other}-{turn}x{number}")
        for _ in range(100):
            assert busy.reply()[0] == "granted"
            assert busy.reply() == "OK"
        for watch in watches:
            # Fetched events make room for others, so the watch never falls silent.
            side("HF.FETCH", session, watch, turn * 200)
        if b"connected_clients:2\r" in busy("INFO").encode():
            break

    assert b"connected_clients:2\r" in busy("INFO").encode()
    assert side("HF.RENEW", session)[0] == "open"
    close(side)
    close(busy)


def test_a_pipeline_deeper_than_its_limit_is_answered_completely_and_in_order(tight: Speak) -> None:
    wire = tight()
    wire.raw(b"".join(pack(("ECHO", number)) for number in range(700)))

    assert [wire.reply() for _ in range(700)] == [str(number) for number in range(700)]


def test_a_flood_on_one_connection_lets_others_have_their_turn(speak: Speak) -> None:
    flood, other = speak(), speak()
    session = flood.open()
    name = uuid4().hex
    burst = b"".join(pack(("HF.LOOK", f"{session}-{name}")) for _ in range(20_000))
    flood.raw(burst)

    assert other("PING") == "PONG"
    answered = flood.socket.recv(1 << 22, socket.MSG_PEEK)
    assert len(answered) < 20_000 * 40
    for _ in range(20_000):
        assert flood.reply()[0] == "gone"
