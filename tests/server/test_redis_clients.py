"""Redis' own tools and clients of several languages work against the server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast.server import passwords
from tests.servers.lock_server import LockServer, Wire
from tests.servers.process import find


def ask(client: Any, *parts: str | int) -> Any:
    """The reply to a command that redis-py has no method for."""
    return client.execute_command(*parts)


def cli(server: LockServer, *arguments: str, lines: str | None = None) -> str:
    """Run redis-cli; what it prints."""
    command = [find("redis-cli"), "-p", str(server.port), *arguments]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_redis_cli_takes_and_releases_a_lock(shared_server: LockServer) -> None:
    name = uuid4().hex
    session, secret = f"s{uuid4().hex}", uuid4().hex
    script = f"HF.OPEN {session} {secret} 60000\nHF.ACQUIRE {session}-1 {name}\nHF.RELEASE {session}-1\n"

    told = cli(shared_server, "--json", lines=script).splitlines()

    assert json.loads(told[0]) == ["open", 60000, session, None]
    assert json.loads(told[1])[0] == "granted"
    assert told[2] == '"OK"'


def test_redis_cli_shows_maps_in_resp3(shared_server: LockServer) -> None:
    told = json.loads(cli(shared_server, "--json", "-3", "HF.HELLO", "proto=1"))

    assert (told["server"], told["proto"], told["store"], told["durable"]) == ("holdfast", 1, "memory", 0)


def test_another_version_of_the_protocol_is_refused(shared_server: LockServer) -> None:
    assert cli(shared_server, "HF.HELLO", "proto=2").startswith("HFPROTO ")


def test_redis_cli_s_own_questions_are_answered(shared_server: LockServer) -> None:
    assert cli(shared_server, "PING") == "PONG\n"
    assert "role:master" in cli(shared_server, "INFO")
    assert int(cli(shared_server, "COMMAND", "COUNT")) > 20
    assert "hf.acquire" in cli(shared_server, "COMMAND", "LIST")
    assert "HF.ACQUIRE claim name" in cli(shared_server, "COMMAND", "DOCS", "hf.acquire")
    assert cli(shared_server, "CLIENT", "SETNAME", "me") == "OK\n"
    assert cli(shared_server, "SELECT", "0") == "OK\n"
    assert cli(shared_server, "SELECT", "1").startswith("ERR ")
    assert cli(shared_server, "QUIT") == "OK\n"


def titles(told: str) -> list[str]:
    """The sections of an answer to INFO."""
    return [line.removeprefix("# ") for line in told.splitlines() if line.startswith("# ")]


def test_info_tells_of_the_sections_that_it_is_asked_for(wire: Wire) -> None:
    every = ["Server", "Clients", "Locks", "Stats", "Persistence", "Replication"]

    assert titles(wire("INFO")) == every
    for word in ("default", "all", "EVERYTHING"):
        assert titles(wire("INFO", word)) == every
    assert re.fullmatch(r"# Clients\r\nconnected_clients:\d+\r\nblocked_clients:\d+\r\n", wire("INFO", "cLIENTS"))
    assert titles(wire("INFO", "replication", "server", "nothing")) == ["Server", "Replication"]
    assert wire("INFO", "nothing") == ""


@pytest.mark.parametrize("setting", [("CLIENT", "SETNAME"), ("HELLO", "3", "SETNAME")])
@pytest.mark.parametrize("name", ["two words", "two\nid=1 lines", "two\u2028id=1", "two\x85id=1", "two\xa0words"])
def test_a_client_s_name_cannot_forge_a_line_about_another(wire: Wire, setting: tuple[str, ...], name: str) -> None:
    wire("CLIENT", "SETNAME", "before")

    assert str(wire(*setting, name)).startswith("ERR Client names cannot contain spaces")
    assert wire("CLIENT", "GETNAME") == "before"


@pytest.mark.parametrize("command", [["-t", "ping"], ["HF.CELLGET", "k:__rand_int__"], ["HF.LIST", "nothing/"]])
def test_redis_benchmark_runs(shared_server: LockServer, command: list[str]) -> None:
    options = ["-p", str(shared_server.port), "-n", "2000", "-c", "20", "-P", "4", "--csv"]
    done = subprocess.run([find("redis-benchmark"), *options, *command], capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert "error" not in (done.stdout + done.stderr).lower()
    assert len(done.stdout.splitlines()) >= 2


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py(shared_server: LockServer, protocol: int) -> None:
    name = uuid4().hex
    with redis.Redis(port=shared_server.port, protocol=protocol, decode_responses=True, client_name="py") as client:
        assert client.ping()
        with client.client() as one:
            session = ask(one, "HF.OPEN", "*", "*", 60_000)[2]
            granted = ask(one, "HF.ACQUIRE", f"{session}-1", name)
            assert granted[0] == "granted"
            with pytest.raises(redis.ResponseError, match="unknown option"):
                ask(one, "HF.ACQUIRE", f"{session}-2", name, "COLOUR", "red")
            shown = ask(one, "HF.INSPECT", name)
            assert (shown if protocol == 3 else dict(zip(shown[::2], shown[1::2], strict=True)))["name"] == name
            assert ask(one, "HF.RELEASE", f"{session}-1") == "OK"


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_s_questions_about_the_server_are_answered(shared_server: LockServer, protocol: int) -> None:
    with redis.Redis(port=shared_server.port, protocol=protocol, client_name="py") as client:
        assert client.command()["hf.acquire"]["name"] == "hf.acquire"
        info = client.client_info()
        assert info["name"] == "py"
        # Versions of redis-py up to 6.0 read these without a look whether they are there.
        assert {"db", "sub", "psub", "multi", "qbuf", "qbuf-free", "argv-mem", "obl", "oll", "omem", "tot-mem"} <= {
            *info
        }
        assert "py" in [one["name"] for one in client.client_list()]
        assert client.info()["loading"] == 0


def test_redis_py_passes_over_pushes_that_it_does_not_know(shared_server: LockServer) -> None:
    name = uuid4().hex
    with redis.Redis(port=shared_server.port, protocol=3, decode_responses=True) as client, client.client() as one:
        session = ask(one, "HF.OPEN", "*", "*", 60_000)[2]
        ask(one, "HF.ACQUIRE", f"{session}-1", name)
        ask(one, "HF.ACQUIRE", f"{session}-2", name, "OWNER", "another")
        assert ask(one, "HF.RELEASE", f"{session}-1") == "OK"

        # By now the push that says so lies before this reply.
        assert ask(one, "HF.LOOK", f"{session}-2")[0] == "granted"


async def test_redis_py_asyncio_waits_by_a_blocking_acquire(shared_server: LockServer) -> None:
    name = uuid4().hex
    async with redis.asyncio.Redis(port=shared_server.port, decode_responses=True, protocol=2) as client:
        async with client.client() as first, client.client() as second:
            one = (await ask(first, "HF.OPEN", "*", "*", 60_000))[2]
            two = (await ask(second, "HF.OPEN", "*", "*", 60_000))[2]
            granted = await ask(first, "HF.ACQUIRE", f"{one}-1", name)
            waiting = asyncio.ensure_future(ask(second, "HF.ACQUIRE", f"{two}-1", name, "WAIT", 20_000, "BLOCK"))
            while not (await ask(first, "HF.INSPECT", name))[9]:
                assert not waiting.done()
            await ask(first, "HF.RELEASE", f"{one}-1")
            assert (await waiting)[1] > granted[1]


def test_redis_py_logs_in() -> None:
    config = f'[users.ada]\npassword = "{passwords.protect("secret")}"\nrights = [{{ prefix = "", may = ["read"] }}]'
    with LockServer(config=config) as server:
        with redis.Redis(port=server.port, username="ada", password="secret") as client:
            assert client.ping()
        never = Retry(NoBackoff(), 0)
        with redis.Redis(port=server.port, username="ada", password="guess", retry=never) as client:
            with pytest.raises(redis.AuthenticationError):
                client.ping()


@pytest.fixture(scope="module")
def ioredis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with ioredis in it, from npm."""
    folder = tmp_path_factory.mktemp("ioredis")
    (folder / "package.json").write_text('{"private": true, "dependencies": {"ioredis": "^5.4.0"}}')
    command = [find("npm"), "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel", "error"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    yield folder
    shutil.rmtree(folder)


JAVASCRIPT = """
const Redis = require("ioredis");
async function main() {
  const port = Number(process.env.PORT), name = process.env.NAME;
  const first = new Redis(port), second = new Redis(port);
  const one = (await first.call("HF.OPEN", "*", "*", 60000))[2];
  const two = (await second.call("HF.OPEN", "*", "*", 60000))[2];
  const granted = await first.call("HF.ACQUIRE", one + "-1", name, "NOTE", "from JavaScript");
  const refused = await second.call("HF.ACQUIRE", two + "-1", name, "WAIT", 0);
  const waiting = second.call("HF.ACQUIRE", two + "-2", name, "WAIT", 20000, "BLOCK");
  while ((await first.call("HF.INSPECT", name))[9].length === 0);
  const released = await first.call("HF.RELEASE", one + "-1");
  const next = await waiting;
  let wrong = "";
  try { await first.call("HF.NOTHING"); } catch (error) { wrong = error.message; }
  console.log(JSON.stringify({ granted, refused, released, next, wrong }));
  await first.quit(); await second.quit();
}
main().catch((error) => { console.error(error); process.exit(1); });
"""


def test_ioredis(shared_server: LockServer, ioredis: Path) -> None:
    (ioredis / "locks.js").write_text(JAVASCRIPT)
    settings = os.environ | {"PORT": str(shared_server.port), "NAME": uuid4().hex}
    done = subprocess.run(
        [find("node"), "locks.js"], cwd=ioredis, env=settings, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["granted"][0], told["refused"][0], told["released"], told["next"][0]) == (
        "granted",
        "refused",
        "OK",
        "granted",
    )
    assert told["refused"][1][13] == "from JavaScript"
    assert told["next"][1] > told["granted"][1]
    assert told["wrong"].startswith("ERR unknown command")
