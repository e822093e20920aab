"""A real server under hostile bytes: it goes on, in bounded memory, and nobody else notices."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.engines.resp.wire import pack
from holdfast.server import passwords
from holdfast.server.users import User, Users
from tests.server.conftest import Speak
from tests.server.inside import Client, Inside
from tests.servers.lock_server import LockServer, Wire

HOSTILE = [
    b"*1000000000\r\n",
    b"*64\r\n" * 1000,
    b"*2\r\n$4\r\nPING\r\n$999999999999\r\n",
    b"*1\r\n$2000000\r\n" + b"x" * 500_000,
    b">1000000000\r\n",
    b"%1000000000\r\n",
    b"~1000000000\r\n",
    b"*1\r\n*1\r\n*1\r\n" * 100,
    b"$1000000000\r\n",
    b"x" * 100_000,
    b"\x00" * 4096,
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    pack(("HF.ACQUIRE", "*", b"\xff" * 500)) * 100,
    pack(("HF.OPEN", "*", "*", 100)) * 100,
    pack(("HELLO", 3, "AUTH", "a" * 1000, "b" * 1000)) * 10,
]


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def test_hostile_bytes_cost_bounded_memory_and_nobody_else_notices() -> None:
    chance = random.Random(7)
    with LockServer() as server:
        quiet = server.speak()
        session = quiet.open()
        quiet("HF.ACQUIRE", f"{session}-1", "k")
        before = resident(server.pid)
        for turn in range(400):
            data = HOSTILE[turn % len(HOSTILE)]
            if turn >= 2 * len(HOSTILE):
                at = chance.randrange(len(data))
                data = data[:at] + chance.randbytes(5) + data[at + chance.randrange(5) :]
            with server.speak() as wire:
                try:
                    wire.raw(data)
                except ConnectionError:
                    continue  # it was closed while we were still talking
            assert quiet("HF.LOOK", f"{session}-1")[0] == "granted"

        assert resident(server.pid) - before < 64 << 20
        assert "internal error" not in server.log.read_text()
        assert '"level": "error"' not in server.log.read_text()


@pytest.mark.parametrize("data", [b"*1000000000\r\n", b"*1\r\n:5\r\n", b"*1\r\n$3\r\nabcdef\r\n", b"x" * 5000])
def test_what_is_no_request_is_told_and_the_connection_closed(speak: Speak, data: bytes) -> None:
    wire: Wire = speak()
    wire.raw(pack(("PING",)) + data)

    first, error = wire.rest()

    assert first == "PONG"
    assert str(error).startswith("ERR Protocol error: ")


def test_a_connection_that_says_nothing_is_closed_if_one_wants_that() -> None:
    with LockServer(config="[limits]\nidle = 300\n") as server, server.speak() as wire:
        assert wire("PING") == "PONG"

        assert list(wire.rest()) == []


@pytest.mark.parametrize("start", [b"POST / HTTP/1.1\r\n", b"get / HTTP/1.1\r\n", b"Host: localhost\r\n", b"host:x\n"])
def test_commands_in_the_body_of_a_web_page_s_request_are_not_carried_out(
    speak: Speak, shared_server: LockServer, start: bytes
) -> None:
    name = f"hostile/{uuid4().hex}"
    page: Wire = speak()
    page.raw(start + b"Content-Type: text/plain\r\n\r\n" + f"HF.CELLSET {name} v\r\n".encode())

    (error,) = page.rest()

    assert str(error).startswith("ERR Protocol error: this is no HTTP server")
    assert speak()("HF.CELLGET", name) == ["cell", 0, None]
    assert "this is no HTTP server" in shared_server.log.read_text()


@pytest.mark.parametrize("request_", [("PING", *["x"] * 59), ("A",)], ids=["of many arguments", "short"])
def test_every_one_of_many_requests_at_once_is_answered(speak: Speak, request_: tuple[str, ...]) -> None:
    wire: Wire = speak()
    wire.raw(pack(request_) * 2000 + pack(("ECHO", "end")) + b"*x\r\n")

    *errors, end, problem = wire.rest()

    assert (len(errors), end) == (2000, "end")
    assert str(problem).startswith("ERR Protocol error: ")


async def test_requests_before_a_login_take_no_more_memory_than_their_bytes() -> None:
    password = passwords.protect("right")
    inside = Inside(users=Users({"ada": User("ada", password)}))
    client = Client(inside)
    client.send("AUTH", "ada", "wrong")
    tracemalloc.start()

    client.connection.data_received(b"a\n" * 131_072)
    used, _ = tracemalloc.get_traced_memory()

    tracemalloc.stop()
    assert used < 1 << 20
    assert inside.service.unfinished > 250_000
    client.lose()
    assert inside.service.unfinished == 0
    inside.close()
