"""A server that does not want this client, or is another one than the URL says: the message tells what to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import EngineUnavailable, InvalidRequest, NotAcquired, aio
from holdfast.server import passwords
from holdfast.verify.servers.process import wait_until
from holdfast.verify.servers.redis import RedisServer
from tests.servers.certificates import Authority
from tests.servers.lock_server import CHEAP, LockServer

Acquire = Callable[[str], Awaitable[None]]
CONFIG = f"""
[users.ada]
password = "{passwords.protect("secret", CHEAP)}"
rights = [{{ prefix = "", may = ["hold"] }}]
"""


async def blocking(url: str) -> None:
    with holdfast.connect(url) as locks:
        locks.lock("k").acquire(wait=20.0)


async def asynchronous(url: str) -> None:
    async with aio.connect(url) as locks:
        await locks.lock("k").acquire(wait=20.0)


BOTH = pytest.mark.parametrize("acquire", [blocking, asynchronous])


@BOTH
async def test_a_server_with_users_asks_for_a_login_in_the_url(acquire: Acquire) -> None:
    with LockServer(config=CONFIG) as server, pytest.raises(EngineUnavailable, match="holdfast://user:password@host"):
        await acquire(f"holdfast://127.0.0.1:{server.port}?durable=0")


def test_what_breaks_a_rule_of_the_server_is_named() -> None:
    with LockServer(config="[limits]\nmax_ttl = 5000\ntext = 100\n") as server:
        url = f"holdfast://127.0.0.1:{server.port}?durable=0"
        with holdfast.connect(url, ttl=4.0) as locks, pytest.raises(InvalidRequest) as note:
            locks.lock("k", note="it's " + "n" * 100).acquire()
        with holdfast.connect(url, ttl=10.0) as locks, pytest.raises(InvalidRequest) as ttl:
            locks.lock("k").acquire()

    assert (note.value.argument, note.value.rule) == ("note", "it has 105 bytes, the limit text is 100")
    assert str(note.value.value).startswith("it's nnn")
    assert (ttl.value.argument, ttl.value.value) == ("ttl", "10000")


def test_whoever_does_not_say_where_it_runs_is_told_by_its_owner() -> None:
    with LockServer() as server, server.speak() as wire:
        session = wire.open()
        wire("HF.ACQUIRE", "*", "k")
        with holdfast.connect(f"holdfast://127.0.0.1:{server.port}?durable=0") as locks:
            with pytest.raises(NotAcquired, match=rf"held by a client \(owner {session}\) for"):
                locks.lock("k").acquire(wait=0.1)


@pytest.mark.parametrize("scheme", ["holdfast", "redis"])
def test_a_port_without_a_host_is_refused_before_anything_is_asked(scheme: str) -> None:
    with pytest.raises(InvalidRequest, match="an address is host:port"):
        holdfast.connect(f"{scheme}://:17420")


@BOTH
async def test_a_redis_is_no_lock_server(acquire: Acquire) -> None:
    with RedisServer() as server, pytest.raises(EngineUnavailable, match="begins with redis://"):
        await acquire(f"holdfast://127.0.0.1:{server.port}")


@pytest.mark.parametrize("tls", [False, True])
async def test_what_the_server_has_closed_while_the_loop_was_busy_takes_no_request(tls: bool, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    pair = authority.issue("server")
    files = f'[tls]\ncertificate = "{pair.certificate}"\nkey = "{pair.key}"\n' if tls else ""
    with LockServer(config=f"{files}[limits]\nidle = 300\n") as server:
        more = f"&ca={authority.own.certificate}" if tls else ""
        async with aio.connect(f"holdfast://localhost:{server.port}?durable=0{more}", ttl=30.0) as locks:
            cell = locks.cell("config")
            await cell.set(b"first")
            closed = server.log.read_text().count("connection closed")
            # The loop does not turn meanwhile.
            wait_until(lambda: server.log.read_text().count("connection closed") > closed, 20.0, "it is closed")
            # The server logs that before its socket is closed.
            io: Any = locks._core.verbs.io
            wait_until(lambda: io.port.link.is_left, 20.0, "the end of the connection arriving here")

            await cell.set(b"second")

            assert (await cell.get())[0] == b"second"
