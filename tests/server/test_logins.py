"""Logins that go wrong, come late, or meet the end of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.server import password_checks, passwords
from holdfast.server.password_checks import DELAY_PER_FAILURE, LONGEST_DELAY, MOST_HOSTS, Failures, network_of
from holdfast.server.process import Process
from holdfast.server.settings import Settings
from holdfast.server.users import User, Users
from tests.server.inside import Client, Inside, Line
from tests.servers.lock_server import CHEAP

USERS = Users({"ada": User("ada", passwords.protect("secret", CHEAP), reads=("",))})


@pytest.fixture
async def inside(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Inside]:
    monkeypatch.setattr(password_checks, "DELAY_PER_FAILURE", 0.001)
    inside = Inside(users=USERS)
    yield inside
    inside.close()


async def checked(inside: Inside) -> None:
    """All passwords have been checked, and what follows from that was said."""
    deadline = inside.loop.time() + 20
    while inside.loop.time() < deadline:
        await inside.settle()
        if not inside.commands.logins.count and not any(one.held or one._backlog for one in inside.service.connections):
            return
    raise AssertionError("a login was not answered")


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


def from_host(inside: Inside, host: str) -> Client:
    client = Client(inside)
    client.connection.peer = f"{host}:1234"
    return client


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The passwords that were checked, in order."""
    found: list[bytes] = []
    fits = passwords.fits

    def noted(password: bytes, protected: str) -> bool:
        found.append(password)
        return fits(password, protected)

    monkeypatch.setattr(passwords, "fits", noted)
    return found


@pytest.mark.parametrize(
    ("host", "user"), [("10.0.0.2", "ada"), ("10.0.0.1", "bob"), ("[2001:db8:1::1]", "ada")], ids=str
)
async def test_a_right_password_is_checked_next_while_another_host_or_user_sends_wrong_ones(
    inside: Inside, hashed: list[bytes], host: str, user: str
) -> None:
    ada = USERS.by_name["ada"]
    inside.service.users = Users({"ada": ada, "bob": User("bob", ada.password)})
    floods = [from_host(inside, "10.0.0.1") for _ in range(110)]
    for number, flood in enumerate(floods):
        flood.send("AUTH", "ada", f"wrong{number}")
    client = from_host(inside, host)
    client.send("AUTH", user, "secret")
    await checked(inside)

    assert client.replies() == [b"OK"]
    assert hashed.index(b"secret") <= 3
    refused = [str(reply).split()[0] for flood in floods for reply in flood.replies()]
    assert refused.count("WRONGPASS") + refused.count("HFLIMIT") == 110
    assert 8 <= refused.count("HFLIMIT") <= 12


async def test_the_host_with_most_logins_is_told_to_come_back_and_no_other(inside: Inside) -> None:
    flood = [from_host(inside, "10.0.0.1") for _ in range(101)]
    for number, client in enumerate(flood):
        client.send("AUTH", "ada", f"wrong{number}")
    others = [from_host(inside, f"10.0.1.{number}") for number in range(20)]
    for number, client in enumerate(others):
        client.send("AUTH", "ada", f"guess{number}")
    await checked(inside)

    assert [str(client.replies()[0]).split()[0] for client in others] == ["WRONGPASS"] * 20
    assert [str(client.replies()[0]).split()[0] for client in flood].count("HFLIMIT") == 20


async def test_a_wrong_password_that_comes_again_and_again_is_checked_once(inside: Inside, hashed: list[bytes]) -> None:
    clients = [Client(inside) for _ in range(50)]
    for client in clients:
        client.send("AUTH", "ada", "an old one")
        client.send("AUTH", "nobody", "an old one")
    await checked(inside)

    assert hashed == [b"an old one"] * 2, "once for each user: who does not exist is no other than who does"
    assert {str(reply).split()[0] for client in clients for reply in client.replies()} == {"WRONGPASS"}


async def test_a_password_that_was_wrong_and_is_right_since_a_reload_is_taken(inside: Inside) -> None:
    first, second = Client(inside), Client(inside)
    first.send("AUTH", "ada", "new")
    await checked(inside)
    inside.service.users = Users({"ada": User("ada", passwords.protect("new", CHEAP))})
    second.send("AUTH", "ada", "new")
    await checked(inside)

    assert [str(first.replies()[0]).split()[0], second.replies()] == ["WRONGPASS", [b"OK"]]


async def test_what_a_connection_that_has_gone_asked_is_not_checked(inside: Inside, hashed: list[bytes]) -> None:
    clients = [Client(inside) for _ in range(20)]
    for number, client in enumerate(clients):
        client.send("AUTH", "ada", f"wrong{number}")
    for client in clients[1:]:
        client.lose()
    await checked(inside)

    assert hashed == [b"wrong0"]


async def test_the_answer_to_a_wrong_password_is_delayed_after_many_and_that_to_a_right_one_is_not(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(password_checks, "DELAY_PER_FAILURE", DELAY_PER_FAILURE)
    logins = inside.commands.logins
    for _ in range(1000):
        longest = logins.failures.add("10.0.0.1")
    assert longest == LONGEST_DELAY
    wrong, right = from_host(inside, "10.0.0.1"), from_host(inside, "10.0.0.1")
    wrong.send("AUTH", "ada", "wrong")
    right.send("AUTH", "ada", "secret")
    while not right.line.sent:
        await inside.turn()

    assert right.replies() == [b"OK"]
    assert (logins.count, wrong.replies()) == (1, [])
    wrong.lose()


def test_wrong_passwords_are_forgotten_second_by_second_and_of_so_many_hosts() -> None:
    failures = Failures()
    for number in range(MOST_HOSTS + 10):
        failures.add(f"host{number}")
    for _ in range(3):
        last = failures.add("host20")
    assert (len(failures._count), last) == (MOST_HOSTS, 4 * DELAY_PER_FAILURE)

    for _ in range(4):
        failures.second_over()

    assert not failures._count


async def test_wrong_passwords_fill_no_log(inside: Inside, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(40):
        client = Client(inside)
        client.send("AUTH", "ada", f"wrong{number}")
    await checked(inside)
    inside.service.complaints.second_over()

    events = [record.getMessage() for record in caplog.records]
    assert events == ["login refused"] * 10 + ["more of the same were not logged"]
    assert inside.service.tally.logins_refused == 40


@pytest.mark.parametrize(
    ("peer", "network"),
    [
        ("10.1.2.3:99", "10.1.2.3"),
        ("[2001:db8:1:2:3::9]:99", "2001:db8:1:2::/64"),
        ("[::ffff:10.1.2.3]:99", "10.1.2.3"),
        ("[fe80::1%eth0]:99", "fe80::/64"),
        ("?", ""),
    ],
)
def test_one_machine_is_one_host_whatever_addresses_it_has(peer: str, network: str) -> None:
    assert network_of(peer) == network
