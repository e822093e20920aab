"""One user's excess is not another user's trouble."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.server.limits import Limits
from holdfast.server.process import Process
from holdfast.server.settings import Settings
from holdfast.server.users import User, Users
from tests.server.inside import Client, Inside, Line

ADA, BOB = (User(name, password="x", holds=("",), reads=("",)) for name in ("ada", "bob"))
HALF = b"*2\r\n$4\r\nPING\r\n$6000\r\n"
LIMITS = Limits(total_input=10_000, sessions_per_user=2, connections_per_user=2)


@pytest.fixture
async def inside() -> AsyncIterator[Inside]:
    inside = Inside(limits=LIMITS, users=Users({"ada": ADA, "bob": BOB}))
    yield inside
    inside.close()


async def test_who_has_begun_to_send_most_is_closed_and_not_who_came_last(inside: Inside) -> None:
    hoarders, other = [Client(inside, ADA) for _ in range(2)], Client(inside, BOB)
    for hoarder, size in zip(hoarders, (4_000, 4_500), strict=True):
        hoarder.connection.data_received(HALF + b"x" * size)

    other.connection.data_received(HALF + b"x" * 5_000)
    await inside.settle()

    assert [client.line.closed for client in (*hoarders, other)] == [False, True, False]
    assert "total_input" in str(hoarders[1].replies()[0])
    other.connection.data_received(b"x" * 1_000 + b"\r\n")
    await inside.settle()
    assert other.replies() == [b"x" * 6_000]


async def test_unread_replies_are_counted_by_user(inside: Inside) -> None:
    process = Process(Settings(store="memory://", limits=Limits(total_output=10_000)), Settings)
    sizes = {"ada": (4_000, 4_000), "bob": (6_000,)}
    lines: dict[str, list[Line]] = {}
    for user in (ADA, BOB):
        for size in sizes[user.name]:
            line = Unread(size)
            connection = process._connection()
            connection.connection_made(line)
            connection.user = user
            connection.pause_writing()
            lines.setdefault(user.name, []).append(line)

    process._close_slow()

    # Bob's is the largest of all, but Ada's together are more.
    assert [line.closed for line in lines["bob"]] == [False]
    assert sorted(line.closed for line in lines["ada"]) == [False, True]
    process.logins.close()
    process.over.cancel()


class Unread(Line):
    """A client that reads nothing."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def get_write_buffer_size(self) -> int:
        return self.size


async def test_a_user_leaves_sessions_for_the_others(inside: Inside) -> None:
    ada, bob = Client(inside, ADA), Client(inside, BOB)
    for number in range(3):
        ada.send("HF.OPEN", f"session{number}", "x" * 22, 60_000)
    bob.send("HF.OPEN", "session9", "x" * 22, 60_000)
    await inside.settle()

    assert [str(reply).split()[0] for reply in ada.replies()][2] == "HFLIMIT"
    assert bob.replies()[0][0] == b"open"
    ada.send("HF.CLOSE", "session1")
    ada.send("HF.OPEN", "session2", "x" * 22, 60_000)
    await inside.settle()
    assert [reply if isinstance(reply, bytes) else reply[0] for reply in ada.replies()] == [b"OK", b"open"]


async def test_a_user_leaves_connections_for_the_others(inside: Inside) -> None:
    logins = inside.commands.logins
    for user in (ADA, BOB):
        logins._remembered.add(b"secret", user.password)
    clients = [Client(inside) for _ in range(4)]
    for client, user in zip(clients, (ADA, ADA, ADA, BOB), strict=True):
        client.send("AUTH", user.name, "secret")
    await inside.settle()

    assert [str(client.replies()[0])[:27] for client in clients] == [
        "b'OK'", "b'OK'", "HFLIMIT the limit connectio", "b'OK'",
    ]  # fmt: skip
    clients[0].lose()
    clients[2].send("AUTH", "ada", "secret")
    await inside.settle()
    assert clients[2].replies() == [b"OK"]
