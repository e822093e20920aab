"""A server that does not want this client, or is another one than the URL says: the message tells what to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

import holdfast
from holdfast import EngineUnavailable, aio
from holdfast.server import passwords
from holdfast.verify.servers.redis import RedisServer
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


@BOTH
async def test_a_redis_is_no_lock_server(acquire: Acquire) -> None:
    with RedisServer() as server, pytest.raises(EngineUnavailable, match="begins with redis://"):
        await acquire(f"holdfast://127.0.0.1:{server.port}")
