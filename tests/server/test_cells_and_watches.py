"""Cells, listing, watching: on the wire."""

from __future__ import annotations

from uuid import uuid4

import pytest

from holdfast.model import HIGHEST_RAISE
from tests.server.conftest import Speak
from tests.servers.lock_server import LockServer, Wire


@pytest.fixture
def name() -> str:
    return f"test/{uuid4().hex}"


def test_a_cell_that_is_not_there_has_version_0(wire: Wire, name: str) -> None:
    assert wire("HF.CELLGET", name) == ["cell", 0, None]


def test_a_cell_keeps_bytes_as_they_are(wire: Wire, name: str) -> None:
    value = bytes(range(256)) + b"\r\n*3\r\n$1000000000\r\n"
    _, version = wire("HF.CELLSET", name, value)
    wire.send("HF.CELLGET", name)
    wire._reader.set_encoding(encoding=None, errors="strict")

    assert wire.reply() == [b"cell", version, value]


def test_a_cell_is_set_only_at_the_version_that_was_expected(wire: Wire, name: str) -> None:
    _, version = wire("HF.CELLSET", name, "one", "VERSION", 0)

    assert wire("HF.CELLSET", name, "two", "VERSION", 0) == ["mismatch", version]
    assert wire("HF.CELLSET", name, "two", "VERSION", version)[1] > version


def test_versions_grow_across_a_delete(wire: Wire, name: str) -> None:
    _, first = wire("HF.CELLSET", name, "one")
    assert wire("HF.CELLDEL", name, "VERSION", first - 1) == ["mismatch", first]
    assert wire("HF.CELLDEL", name, "VERSION", first) == ["cell", 0]
    assert wire("HF.CELLDEL", name) == ["cell", 0]

    assert wire("HF.CELLSET", name, "two")[1] > first


def test_a_cell_that_is_kept_for_a_while_goes_by_itself(wire: Wire, shared_server: LockServer, name: str) -> None:
    session = wire.open()
    wire("HF.CELLSET", name, "x", "KEEP", 100)
    # The end of this wait comes after that of the cell, on the same clock.
    wire("HF.ACQUIRE", f"{session}-1", name)
    wire("HF.ACQUIRE", f"{session}-2", name, "OWNER", "other", "WAIT", 200, "BLOCK")

    assert wire("HF.CELLGET", name) == ["cell", 0, None]


def test_a_value_over_its_limit_is_refused(wire: Wire, name: str) -> None:
    assert str(wire("HF.CELLSET", name, b"x" * ((1 << 20) + 1))).startswith("HFINVALID")
    assert wire("HF.CELLSET", name, b"x" * (1 << 20))[0] == "cell"


def test_a_watch_tells_what_happens_under_its_prefix(wire: Wire, speak: Speak, name: str) -> None:
    session = wire.open()
    assert wire("HF.WATCH", session, "w", name) == "OK"
    other = speak()
    rival = other.open()
    other("HF.ACQUIRE", f"{rival}-1", f"{name}/a")
    other("HF.ACQUIRE", f"{rival}-2", f"{uuid4().hex}/elsewhere")
    other("HF.RELEASE", f"{rival}-1")

    assert wire.push() == ["hf.letter", session, "w"]
    _, last, overflowed, events = wire("HF.FETCH", session, "w", 0)

    assert [(event["type"], event["name"]) for event in events] == [
        ("granted", f"{name}/a"),
        ("released", f"{name}/a"),
    ]
    assert overflowed == 0
    assert wire("HF.FETCH", session, "w", last) == ["letters", last, 0, []]


def test_a_fetch_may_wait_for_the_next_event(speak: Speak, name: str) -> None:
    watching, other = speak(), speak()
    session, rival = watching.open(), other.open()
    watching("HF.WATCH", session, "w", name)
    watching.send("HF.FETCH", session, "w", 0, "WAIT", 20_000)
    watching.send("PING")

    other("HF.ACQUIRE", f"{rival}-1", name)

    word, last, _, events = watching.reply()
    assert (word, last, events[0][1]) == ("letters", 1, "granted")
    assert watching.reply() == "PONG"


def test_a_fetch_that_waited_in_vain_brings_nothing(wire: Wire, name: str) -> None:
    session = wire.open()
    wire("HF.WATCH", session, "w", name)

    assert wire("HF.FETCH", session, "w", 0, "WAIT", 50) == ["letters", 0, 0, []]


def test_a_fetch_of_a_watch_that_has_ended_is_over(wire: Wire, name: str) -> None:
    session = wire.open()
    wire("HF.WATCH", session, "w", name)
    assert wire("HF.UNWATCH", session, "w") == "OK"

    assert wire("HF.FETCH", session, "w", 0) == ["over"]


def test_a_cell_watch_tells_that_the_cell_changed(wire: Wire, name: str) -> None:
    session = wire.open()
    wire("HF.CELLWATCH", session, "c", name)

    wire("HF.CELLSET", name, "x")

    assert wire.push() == ["hf.letter", session, "c"]
    (event,) = wire("HF.FETCH", session, "c", 0)[3]
    assert (event["type"], event["kind"], event["name"]) == ("changed", "cell:holdfast.cell", name)


def test_a_watch_is_ended_by_its_own_session_only(wire: Wire, speak: Speak, name: str) -> None:
    session = wire.open()
    wire("HF.WATCH", session, "w", name)
    thief = speak()
    thief.open()

    assert str(thief("HF.UNWATCH", session, "w")).startswith("HFDETACHED")
    assert str(thief("HF.FETCH", session, "w", 0)).startswith("HFDETACHED")


def test_a_list_shows_what_is_under_a_prefix_and_says_when_there_is_more(wire: Wire, name: str) -> None:
    session = wire.open()
    for number in range(5):
        wire("HF.ACQUIRE", f"{session}-{number}", f"{name}/{number}")

    word, more, locks, _ = wire("HF.LIST", f"{name}/")
    assert (word, more, [lock["name"] for lock in locks]) == ("locks", 0, [f"{name}/{number}" for number in range(5)])
    word, more, locks, _ = wire("HF.LIST", f"{name}/", "COUNT", 3)
    assert (more, [lock["name"] for lock in locks]) == (1, [f"{name}/{number}" for number in range(3)])
    assert wire("HF.LIST", f"{name}/", "KIND", "other.") == ["locks", 0, [], None]


def test_tokens_are_raised(wire: Wire, name: str) -> None:
    session = wire.open()
    token = wire("HF.ACQUIRE", f"{session}-1", name)[1]

    assert wire("HF.RAISE", token + 1000) == "OK"

    wire("HF.RELEASE", f"{session}-1")
    assert wire("HF.ACQUIRE", f"{session}-2", name)[1] > token + 1000
    assert str(wire("HF.RAISE", HIGHEST_RAISE + 1)).startswith("HFINVALID")
