"""The server's process: how it starts, what it refuses, how it stops."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.errors import InvalidRequest
from holdfast.server.addresses import Address
from holdfast.server.settings import Settings
from holdfast.server.tls import TlsFiles
from holdfast.server.users import User, Users
from tests.servers.lock_server import LockServer
from tests.servers.process import wait_until


def start(*options: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `holdfast serve` where it is expected to refuse."""
    command = [sys.executable, "-m", "holdfast.cli.main", "serve", "--store", "memory://", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.test"])
def test_an_address_that_others_can_reach_is_refused_without_users(tmp_path: Path, address: str) -> None:
    done = start("--listen", address, folder=tmp_path)

    assert done.returncode == 2
    assert "--insecure" in done.stderr


def test_an_http_address_that_others_can_reach_is_refused_too(tmp_path: Path) -> None:
    done = start("--listen", "127.0.0.1:0", "--http", "0.0.0.0:0", folder=tmp_path)

    assert done.returncode == 2


def test_client_certificates_do_not_make_a_public_http_address_safe() -> None:
    public, tls = Address("0.0.0.0", 0), TlsFiles("cert.pem", "key.pem", "clients.pem")
    users = Users({"ada": User("ada", "x")})

    with pytest.raises(InvalidRequest, match="HTTP asks for no certificate"):
        Settings(http=public, tls=tls)

    assert Settings(listen=(public,), tls=tls).listen == (public,)
    assert Settings(http=public, users=users).http == public


@pytest.mark.parametrize("option", ["--listen", "--http"])
def test_an_address_that_is_in_use_is_told_with_what_to_do(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = start("--listen", "127.0.0.1:0", option, address, folder=tmp_path)

    assert done.returncode == 69
    assert f"holdfast: {address}: it cannot listen there: Address already in use" in done.stderr
    assert f"choose another by {option}" in done.stderr


def test_a_public_address_is_taken_if_one_insists() -> None:
    with LockServer("--listen", "0.0.0.0:0", "--insecure") as server:
        assert "0.0.0.0" in server.log.read_text()


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("nonsense", "not TOML"),
        ("colour = 1", "no such setting"),
        ("[limits]\ncolour = 1", "no such limit"),
        ("[limits]\nsessions = 0", "at least 1"),
        ("[limits]\nsessions = 'many'", "whole number"),
        ("[limits]\noutput = 3", "at least 4"),
        ("[users.ada]\n", "a password or a certificate"),
        ("[users.ada]\npassword = 'plain'", "--protect-password"),
        ("[users.ada]\ncertificate = 'x'\nrights = [{ prefix = 'a', may = ['fly'] }]", "a right is"),
        ("[users.ada]\ncertificate = 'x'\nrights = 5", "a list of rights"),
        ("[users.ada]\ncertificate = 'x'\nrights = [{ prefix = 'a', may = [['hold']] }]", "a right is"),
        ("[users.ada]\ncertificate = 'x'\n[users.bob]\ncertificate = 'x'", "stands for bob too"),
        ("[users.'']\ncertificate = 'x'", "a user has a name"),
        ("[users.ada]\ncertificate = 'x'", "asked for a certificate only with tls.client_ca"),
        (
            "[users.ada]\ncertificate = 'x'\n[tls]\ncertificate = 'x'\nkey = 'x'",
            "users.ada.certificate='x': nobody can",
        ),
        ("[tls]\n", "needs a certificate and its key"),
        ("[tls]\ncertificate = 'x'", "needs a certificate and its key"),
        ("[tls]\ncertificate = 'no-such-file'\nkey = 'x'", "cannot be used"),
        ("http = 5", "an address looks like"),
        ("http = '7421'", "an address looks like"),
        ("http = ':²'", "an address looks like"),
        ("log_level = 'loud'", "one of"),
    ],
)
def test_a_configuration_that_is_wrong_is_refused_with_its_reason(tmp_path: Path, config: str, told: str) -> None:
    (tmp_path / "server.toml").write_text(config)

    done = start("--listen", "127.0.0.1:0", "--config", "server.toml", folder=tmp_path)

    assert done.returncode == 2
    assert told in done.stderr


def test_a_password_is_protected_by_the_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast.cli.main", "serve", "--protect-password"]
    done = subprocess.run(command, input="open sesame\n", capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("scrypt$")

    with LockServer(config=f'[users.default]\npassword = "{done.stdout.strip()}"') as server, server.speak() as wire:
        assert wire("AUTH", "open sesame") == "OK"


def test_a_stop_answers_what_was_asked_and_says_goodbye() -> None:
    with LockServer() as server:
        wire, blocked = server.speak(3), server.speak()
        session, other = wire.open(), blocked.open()
        wire("HF.ACQUIRE", f"{session}-1", "k")
        blocked.send("HF.ACQUIRE", f"{other}-1", "k", "BLOCK")
        wait_until(lambda: wire("HF.INSPECT", "k")["waiters"] != [], 20.0, "standing in line")

        os.kill(server.pid, signal.SIGTERM)

        assert wire.push() == ["hf.bye", 1000]
        assert list(wire.rest()) == []
        assert [str(reply) for reply in blocked.rest()] == ["HFSTOPPING the server is stopping: come back in a moment"]
        assert server._process is not None
        assert server._process.wait(20) == 0


def test_after_a_stop_everything_is_as_it_was(tmp_path: Path) -> None:
    name = uuid4().hex
    with LockServer(store="sqlite:///locks.db") as server:
        wire = server.speak()
        session = wire.open()
        granted = wire("HF.ACQUIRE", f"{session}-1", name)
        wire("HF.CELLSET", name, "kept")
        server.stop()
        server.start()

        again = server.speak()
        assert again("HF.RESUME", session, wire.secret)[0] == "open"
        assert again("HF.ACQUIRE", f"{session}-1", name) == granted
        assert again("HF.CELLGET", name)[2] == "kept"


def test_after_a_kill_what_was_answered_is_there(tmp_path: Path) -> None:
    name = uuid4().hex
    with LockServer(store="sqlite:///locks.db") as server:
        wire = server.speak()
        session = wire.open()
        granted = wire("HF.ACQUIRE", f"{session}-1", name)
        server.kill()
        server.start()

        again, rival = server.speak(), server.speak()
        rival.open()
        assert rival("HF.ACQUIRE", "*", name, "WAIT", 0)[0] == "refused"
        assert again("HF.RESUME", session, wire.secret)[0] == "open"
        assert again("HF.LOOK", f"{session}-1") == granted
        again("HF.RELEASE", f"{session}-1")
        assert rival("HF.ACQUIRE", "*", name, "WAIT", 0)[1] > granted[1]


def test_a_second_server_on_the_same_store_is_refused() -> None:
    with LockServer(store="sqlite:///locks.db") as server:
        done = start("--listen", "127.0.0.1:0", "--store", "sqlite:///locks.db", folder=server.folder)

        assert done.returncode != 0
        assert "locks.db" in done.stderr


def test_every_line_of_the_log_is_json() -> None:
    with LockServer("--log-level", "debug") as server:
        with server.speak() as wire:
            wire.open()
            wire("HF.BREAK", 'a "quoted" name with ünicode')
        server.stop()
        events = [json.loads(line) for line in server.log.read_text().splitlines()]

    assert {"listening", "session opened", "lock broken", "stopping", "stopped"} <= {event["event"] for event in events}
    assert all({"time", "level", "event"} <= event.keys() for event in events)
