"""One user's excess is not another user's trouble."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.engines.resp.wire import pack
from holdfast.server import batches
from holdfast.server.connection import Connection
from holdfast.server.frames import FrameReader
from holdfast.server.limits import Limits
from holdfast.server.users import User, Users
from tests.core.test_ends import lines_run
from tests.server.inside import Client, Inside, Line, opened

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
        logins.checks.right.add(b"secret", user.password)
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


@pytest.mark.parametrize("nothing", [b"\n", b"\r\n", b" \n", b"*0\r\n"])
def test_whoever_sends_nothing_in_very_many_lines_takes_no_time(nothing: bytes) -> None:
    reader = FrameReader(4096)

    assert lines_run(lambda: reader.feed(nothing * 50_000)) < 100
    assert reader.feed(nothing + b"PING\r\n") == [[b"PING"]]


async def test_a_full_server_lets_go_of_who_has_not_logged_in_rather_than_of_who_comes() -> None:
    inside = Inside(limits=Limits(connections=3), users=Users({"ada": ADA}))
    ada, first, second = Client(inside, ADA), Client(inside), Client(inside)
    second.connection.unknown_since += 1.0
    newcomer = Client(inside)
    await inside.settle()

    assert [one.line.closed for one in (ada, first, second, newcomer)] == [False, True, False, False]
    assert "connections = 3" in str(first.replies()[0])
    for one in (second, newcomer):
        one.connection.user = ADA
        one.connection.logged_in()
    late = Client(inside)
    await inside.settle()
    assert late.line.closed
    inside.close()


async def test_one_who_says_something_in_every_turn_holds_up_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = Inside()
    crowd, victim, talker = [await opened(inside, f"session{number}") for number in range(3)]
    for number in range(200):
        crowd.send("HF.ACQUIRE", f"session0-{number}", f"a/{number}")
    await inside.settle()
    monkeypatch.setattr(batches, "LONGEST_COMPANY", 0.0)
    for number in range(200):
        crowd.send("HF.RELEASE", f"session0-{number}")
    await inside.settle()
    victim.send("HF.ACQUIRE", "session1-1", "k")
    for _ in range(20):
        talker.send("PING")
        await inside.turn(1)

    assert victim.replies()[0][0] == b"granted"
    inside.close()


async def test_values_on_their_way_to_the_disk_are_bounded() -> None:
    inside = Inside(limits=Limits(cell_writes=100))
    client = Client(inside)
    for _ in range(3):
        client.send("HF.CELLSET", "c", "v" * 40)
    await inside.settle()

    assert [str(reply)[:7] for reply in client.replies()[2:]] == ["HFLIMIT"]
    # One value may always be, however large: nobody could ever write it otherwise.
    client.send("HF.CELLSET", "c", "v" * 400)
    await inside.settle()
    assert client.replies()[0][0] == b"cell"
    inside.close()


async def test_a_connection_is_who_it_may_be_when_its_handshake_is_over(inside: Inside) -> None:
    inside.service.set_rules(LIMITS, Users())
    connection = Connection(inside.service, inside.commands)
    inside.service.set_rules(LIMITS, Users({"ada": ADA}))
    line = Line()
    connection.connection_made(line)
    connection.data_received(b"HF.LIST\r\n")
    await inside.settle()

    assert line.sent.startswith(b"-NOAUTH ")


async def test_a_path_has_no_more_segments_than_the_table_can_carry(inside: Inside) -> None:
    client = await opened(inside, "session1", BOB)
    client.send("HF.ACQUIRE", "session1-1", "/".join("a" * 32))
    client.send("HF.ACQUIRE", "session1-2", "/".join("b" * 33))
    await inside.settle()

    granted, refused = client.replies()
    assert granted[0] == b"granted"
    assert str(refused).startswith("HFINVALID name")


@pytest.mark.parametrize("together", [True, False])
async def test_of_many_who_ask_for_long_lists_one_has_its_turn_at_a_time(inside: Inside, together: bool) -> None:
    readers = [Client(inside, BOB if number % 2 else ADA) for number in range(4)]
    counted = inside.service.tally.commands
    for reader in readers:
        reader.connection.data_received(pack(("HF.LIST",)) * (2 if together else 1))

    assert inside.service.tally.commands - counted == 1
    for _ in range(100):
        before = inside.service.tally.commands
        await inside.turn(1)
        assert inside.service.tally.commands - before <= 1
    assert [len(reader.replies()) for reader in readers] == [2 if together else 1] * 4
