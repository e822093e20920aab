"""Logins that go wrong, come late, or meet the end of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.server import passwords
from holdfast.server.process import Process
from holdfast.server.settings import Settings
from holdfast.server.users import User, Users
from tests.server.inside import Client, Inside, Line
from tests.servers.lock_server import CHEAP

USERS = Users({"ada": User("ada", passwords.protect("secret", CHEAP), reads=("",))})


@pytest.fixture
async def inside() -> AsyncIterator[Inside]:
    inside = Inside(users=USERS)
    yield inside
    inside.close()


async def checked(inside: Inside) -> None:
    """All passwords have been checked, and what follows from that was said."""
    deadline = inside.loop.time() + 20
    while inside.commands.logins._waiting and inside.loop.time() < deadline:
        await inside.turn()
    await inside.settle()


async def test_a_connection_is_closed_after_three_wrong_passwords(inside: Inside) -> None:
    client = Client(inside)
    for _ in range(2):
        client.send("AUTH", "ada", "wrong")
        await checked(inside)
        assert not client.line.closed
    client.send("AUTH", "ada", "wrong")
    await checked(inside)

    assert [str(reply).split()[0] for reply in client.replies()] == ["WRONGPASS"] * 3
    assert client.line.closed


async def test_a_login_under_way_at_a_stop_is_answered_once(inside: Inside) -> None:
    client = Client(inside)
    client.send("AUTH", "ada", "secret")
    inside.service.stop(1000)
    await checked(inside)

    assert [str(reply).split()[0] for reply in client.replies()] == ["HFSTOPPING"]
    client.send("HF.LIST")
    await inside.settle()
    assert str(client.replies()[0]).startswith("HFSTOPPING")


async def test_a_password_that_cannot_be_checked_is_wrong(inside: Inside) -> None:
    inside.service.users = Users({"ada": User("ada", "scrypt$3$8$1$c2FsdA==$c2FsdA==")})
    client = Client(inside)
    client.send("AUTH", "ada", "secret")
    await checked(inside)

    assert str(client.replies()[0]).startswith("WRONGPASS")


@pytest.mark.parametrize(
    "protected",
    [
        "scrypt$3$8$1$c2FsdA==$c2FsdA==",
        "scrypt$16384$0$1$c2FsdA==$c2FsdA==",
        "scrypt$16384$8$0$c2FsdA==$c2FsdA==",
        "scrypt$1048576$99$99$c2FsdA==$c2FsdA==",
        "scrypt$16384$8$1$c2FsdA$c2FsdA==",
        "scrypt$16384$8$1$c2FsdA==$====",
    ],
)
def test_a_digest_that_nobody_can_compute_is_not_well_formed(protected: str) -> None:
    assert not passwords.well_formed(protected)
    assert passwords.well_formed(passwords.protect("secret"))


async def test_a_connection_that_has_its_login_checked_for_too_long_is_closed() -> None:
    process = Process(Settings(store="memory://", users=USERS), Settings)
    connection, line = process._connection(), Line()
    connection.connection_made(line)
    connection.hold()
    process._close_silent()
    assert not line.closed

    connection.unknown_since -= 11.0
    process._close_silent()

    assert line.closed
    process.logins.close()


async def test_a_reset_gives_time_to_log_in_again_and_no_more_to_who_never_did() -> None:
    process = Process(Settings(store="memory://", users=USERS), Settings)
    known, unknown = process._connection(), process._connection()
    lines = Line(), Line()
    for connection, line in zip((known, unknown), lines, strict=True):
        connection.connection_made(line)
    process.logins._enter(known, USERS.by_name["ada"])
    for connection in (known, unknown):
        connection.began -= 11.0
        connection.unknown_since -= 11.0
        connection.data_received(b"RESET\r\n")
    process._close_silent()

    assert [line.closed for line in lines] == [False, True]
    process.logins.close()


async def test_a_large_frame_is_refused_again_after_a_reset(inside: Inside) -> None:
    client = Client(inside)
    client.send("AUTH", "ada", "secret")
    await checked(inside)
    client.send("RESET")
    await inside.settle()
    client.connection.data_received(b"*2\r\n$4\r\nAUTH\r\n$5000\r\n")
    await inside.settle()

    assert "at most 4096 bytes" in str(client.replies()[-1])
