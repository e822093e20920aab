"""Faults of a client's connections where no proxy can stand before its servers."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass

import pytest

from holdfast.verify.network import ClientWire, Network
from holdfast.verify.servers.redis import RedisServer

TALKS = """
import socket, sys
wire = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
wire.settimeout(1.0)
for line in sys.stdin:
    try:
        wire.sendall(b"INCR asked\\r\\n")
        print(wire.recv(100).decode().strip(), flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
"""


@dataclass
class Talker:
    """A client in a namespace of its own, which asks once for each line that it is given."""

    process: subprocess.Popen[str]
    wire: ClientWire

    def ask(self) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@pytest.fixture
def servers() -> list[RedisServer]:
    return [RedisServer(), RedisServer()]


@pytest.fixture
def talker(servers: list[RedisServer]) -> Iterator[Talker]:
    with ExitStack() as stack:
        network = stack.enter_context(Network(servers))
        for server in servers:
            stack.enter_context(server)
        wire = network.client_wire()
        command = [*wire.prefix, sys.executable, "-c", TALKS, servers[0].host, str(servers[0].port)]
        process = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        talker = Talker(process, wire)
        assert talker.ask() == ":1"
        yield talker
        process.kill()


def asked(server: RedisServer) -> int:
    """How often it was asked, seen from this machine, which nothing is done to."""
    with closing(socket.create_connection((server.host, server.port), 5)) as wire:
        wire.sendall(b"GET asked\r\n")
        return int(wire.recv(100).split()[1])


def test_a_connection_that_is_cut_is_reset_and_others_are_not(talker: Talker, servers: list[RedisServer]) -> None:
    talker.wire.cut()

    assert talker.ask() in ("ConnectionResetError", "BrokenPipeError", "")
    assert asked(servers[0]) == 1


def test_a_connection_that_is_stalled_says_nothing_and_goes_on_later(
    talker: Talker, servers: list[RedisServer]
) -> None:
    talker.wire.stall()
    assert talker.ask() == "TimeoutError"
    assert asked(servers[0]) == 1

    healing = threading.Timer(0.2, talker.wire.heal)
    healing.start()
    while talker.ask() == "TimeoutError":
        continue
    healing.join()
    assert asked(servers[0]) > 1


def test_what_was_asked_is_done_although_its_reply_is_lost(talker: Talker, servers: list[RedisServer]) -> None:
    talker.wire.drop_replies()

    assert talker.ask() == "TimeoutError"
    assert asked(servers[0]) == 2
